// What people type for what is meant: the words for yes and no, and the dashes that a word
// processor or a web page makes of hyphens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace duet {

// true, on, yes and 1; false, off, no and 0; in any case. Nothing for every other word.
std::optional<bool> parse_boolean(std::string_view text);
inline constexpr std::string_view kBooleanForm = "true or false";

// The name without its dashes, where the dashes before it are not all hyphens: "data" for an en
// dash and "data". Nothing for a text that begins otherwise.
std::optional<std::string> name_after_dash(std::string_view text);
// "begins with an en dash (U+2013)", of such a text; otherwise empty.
std::string dash_words(std::string_view text);
// "; it begins with a minus sign (U+2212), write -1" where a number is expected; otherwise empty.
std::string minus_hint(std::string_view text);

}  // namespace duet
