#include "train/config_file.h"

#include <toml++/toml.h>

#include <algorithm>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "train/text.h"

namespace duet {
namespace {

// A flat file needs one level of brackets and no dots outside its numbers. The parser would follow
// thousands of levels down the stack, so they are counted before it runs.
void check_nesting(std::string_view text, const std::string& path) {
  constexpr int kDeepest = 16, kMostDots = 400;
  int depth = 0, dots = 0;
  std::int64_t line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      // Skips the string, '''...''' and """...""" included; a quote after a backslash is text.
      const std::string_view fence =
          text.substr(i, 3) == std::string(3, c) ? text.substr(i, 3) : text.substr(i, 1);
      for (i += fence.size(); i < text.size() && text.substr(i, fence.size()) != fence; ++i) {
        if (c == '"' && text[i] == '\\') ++i;
        if (i < text.size() && text[i] == '\n') {
          ++line;
          if (fence.size() == 1) break;  // not closed on its line: the parser will say so
        }
      }
      if (i < text.size() && text[i] == c) i += fence.size() - 1;
    } else {
      if (c == '[' || c == '{') ++depth;
      if (c == ']' || c == '}') --depth;
      if (c == '.') ++dots;
    }
    check(depth <= kDeepest && dots <= kMostDots, ErrorKind::file, printable(path), ":", line,
          ": nested too deeply: a configuration is flat: key = value");
  }
}

std::string type_words(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or time";
    default:
      return "a value of another kind";
  }
}

RawValue raw_value(const toml::node& node) {
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* list = node.as_array()) {
    std::vector<std::int64_t> integers;
    for (const toml::node& item : *list) {
      if (!item.is_integer()) return OtherValue{"a list with " + type_words(item) + " in it"};
      integers.push_back(item.as_integer()->get());
    }
    return integers;
  }
  return OtherValue{type_words(node)};
}

}  // namespace

std::vector<Setting> parse_config(std::string_view text, const std::string& path) {
  check_nesting(text, path);
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    const auto magic = describe_magic(text.substr(0, 512));
    check(!magic, ErrorKind::file, printable(path), ": not a configuration: got ",
          magic ? magic->what : "", ", expected TOML; ", magic ? magic->advice : "");
    throw Error(ErrorKind::file, concat(printable(path), ":", error.source().begin.line, ":",
                                        error.source().begin.column,
                                        ": not TOML: ", printable(error.description(), 300)));
  }
  struct Place {
    toml::source_position at;
    std::string_view name;
    const toml::node* node;
  };
  std::vector<Place> places;
  for (const auto& [name, node] : table) {
    places.push_back({name.source().begin, name.str(), &node});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
  });
  std::vector<Setting> settings;
  for (const Place& place : places) {
    const std::string start =
        concat(printable(path), ":", place.at.line, ":", place.at.column, ": ");
    if (place.node->is_table() && find_key(place.name) == nullptr) {
      throw Error(ErrorKind::usage,
                  concat(start, "[", printable(place.name),
                         "]: got a table, expected key = value; the file is flat, "
                         "without tables"));
    }
    check(place.name != "resume", ErrorKind::usage, start,
          "resume: not a key of a file; pass --resume on the command line");
    const std::string where = start + printable(place.name);
    const ConfigKey& key = require_key(place.name, where);
    for (const Setting& other : settings) {
      check(other.key != key.name, ErrorKind::usage, where, ": named twice, also as ", other.where);
    }
    settings.push_back({std::string(key.name), raw_value(*place.node), where});
  }
  return settings;
}

std::vector<Setting> read_config_file(const std::string& path) {
  return parse_config(file_system().read_file(path, kConfigFileLimit), path);
}

}  // namespace duet
