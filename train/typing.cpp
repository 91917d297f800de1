#include "train/typing.h"

#include <algorithm>
#include <array>

#include "runtime/error.h"
#include "runtime/printable.h"

namespace duet {
namespace {

struct Dash {
  std::string_view bytes, name;
};
constexpr std::array<Dash, 10> kDashes{{{"\u2010", "a hyphen (U+2010)"},
                                        {"\u2011", "a non-breaking hyphen (U+2011)"},
                                        {"\u2012", "a figure dash (U+2012)"},
                                        {"\u2013", "an en dash (U+2013)"},
                                        {"\u2014", "an em dash (U+2014)"},
                                        {"\u2015", "a horizontal bar (U+2015)"},
                                        {"\u2212", "a minus sign (U+2212)"},
                                        {"\ufe58", "a small em dash (U+FE58)"},
                                        {"\ufe63", "a small hyphen (U+FE63)"},
                                        {"\uff0d", "a wide hyphen (U+FF0D)"}}};

const Dash* dash_at(std::string_view text) {
  const auto at = std::find_if(kDashes.begin(), kDashes.end(), [&](const Dash& dash) {
    return text.substr(0, dash.bytes.size()) == dash.bytes;
  });
  return at == kDashes.end() ? nullptr : &*at;
}

// The first dash among those that `text` begins with that is no hyphen of a keyboard, and what
// follows all of them.
struct Dashes {
  const Dash* first = nullptr;
  std::string_view rest;
};
Dashes leading_dashes(std::string_view text) {
  Dashes out;
  while (!text.empty()) {
    const Dash* dash = dash_at(text);
    if (dash == nullptr && text.front() != '-') break;
    if (out.first == nullptr) out.first = dash;
    text.remove_prefix(dash == nullptr ? 1 : dash->bytes.size());
  }
  out.rest = text;
  return out;
}

}  // namespace

std::optional<bool> parse_boolean(std::string_view text) {
  std::string word;
  for (const char c : text) word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const std::string_view yes : {"true", "on", "yes", "1"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"false", "off", "no", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<std::string> name_after_dash(std::string_view text) {
  const Dashes dashes = leading_dashes(text);
  if (dashes.first == nullptr) return std::nullopt;
  return std::string(dashes.rest);
}

std::string dash_words(std::string_view text) {
  const Dashes dashes = leading_dashes(text);
  return dashes.first == nullptr ? "" : concat("begins with ", dashes.first->name);
}

std::string minus_hint(std::string_view text) {
  const std::string words = dash_words(text);
  if (words.empty()) return "";
  return concat("; it ", words, ", write -", printable(leading_dashes(text).rest));
}

}  // namespace duet
