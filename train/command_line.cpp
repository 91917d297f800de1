#include "train/command_line.h"

#include <algorithm>
#include <limits>

#include "runtime/printable.h"

namespace duet {
namespace {

std::string& name_of_program() {
  static std::string name = "duet";
  return name;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
}

}  // namespace

void set_program(std::string_view name) { name_of_program() = name.empty() ? "duet" : name; }
const std::string& program() { return name_of_program(); }

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  const bool shows = printable(word, std::numeric_limits<std::size_t>::max()) == word;
  std::string out = shows ? "'" : "$'";
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(word.substr(i, 4)), 1);
    const std::string_view one = word.substr(i, length);
    i += length;
    if (one == "'") {
      out += shows ? "'\\''" : "\\'";
    } else if (!shows && one == "\\") {
      out += "\\\\";
    } else {
      out += printable(one);
    }
  }
  return out + "'";
}

std::string advised(const std::vector<std::string>& words) {
  std::string out = shell_word(program());
  for (const std::string& word : words) out.append(" ").append(shell_word(word));
  return out;
}

}  // namespace duet
