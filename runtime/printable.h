// printable(): text from a file, a flag or a path, made safe to echo in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace duet {

// Control characters, bytes that are no UTF-8 and characters that reorder or break a line become
// \xNN; what is left after `limit` characters becomes "...".
std::string printable(std::string_view text, std::size_t limit = 80);
inline std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

// The length of the valid UTF-8 sequence that `text` begins with (1 to 4 bytes), or 0. Overlong
// forms, surrogates and code points above U+10FFFF are not valid.
std::size_t utf8_length(std::string_view text);

}  // namespace duet
