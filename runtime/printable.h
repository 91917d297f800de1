// Text for messages: what comes from a file, a flag or a path made safe to echo; sizes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace duet {

// Control characters, bytes that are no UTF-8 and characters that reorder or break a line become
// \xNN; what is left after `limit` characters becomes "...".
std::string printable(std::string_view text, std::size_t limit = 80);
inline std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

// "512 B", "1.50 KiB", "64.0 MiB", "213 MiB", "139.8 GiB".
std::string format_bytes(std::size_t bytes);

// The length of the valid UTF-8 sequence that `text` begins with (1 to 4 bytes), or 0. Overlong
// forms, surrogates and code points above U+10FFFF are not valid.
std::size_t utf8_length(std::string_view text);

}  // namespace duet
