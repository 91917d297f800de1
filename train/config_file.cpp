#include "train/config_file.h"

#include <algorithm>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "train/command_line.h"
#include "train/text.h"
#include "train/toml.h"

namespace duet {
namespace {

// Whether a file that begins so may be a configuration: its first line that is neither empty nor a
// comment is a table, a key and a value, or at least begins with the name of a key.
bool begins_as_configuration(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF", kBlank = " \t\r\n";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  while (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size());
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[' || line.front() == '"' || line.front() == '\'') return true;
    constexpr std::string_view kName =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const std::size_t name = std::min(line.find_first_not_of(kName), line.size());
    const std::size_t next = line.find_first_not_of(" \t", name);
    return (next != std::string_view::npos && line[next] == '=') ||
           find_key(line.substr(0, name)) != nullptr;
  }
  return true;
}

bool is_named_toml(std::string_view path) {
  constexpr std::string_view kEnd = ".toml";
  return path.size() >= kEnd.size() && path.substr(path.size() - kEnd.size()) == kEnd;
}

// The file's text. The text to train on, given where the configuration is expected, is refused with
// what to write instead; a file named .toml is no such text, whatever it holds.
std::string read_toml(const std::string& path) {
  const FileReader file = file_system().open(path);
  const bool fits = file.size() <= kConfigFileLimit;
  const std::string head = file.head(fits ? kConfigFileLimit : 512);
  // Blanks, because a few characters alone do not look like a text yet.
  const bool text = !is_named_toml(path) && looks_like_text(head + std::string(8, ' '));
  if (text && !(fits && begins_as_configuration(head))) {
    const std::size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
    const std::string line = head.substr(first, head.find_first_of("\r\n", first) - first);
    throw Error(ErrorKind::file, concat(printable(path), ": a text, not a configuration: got \"",
                                        printable(line, 40),
                                        "\", expected TOML such as n_layer = 4; to train on it, "
                                        "write --data ",
                                        shell_word(path)));
  }
  return fits ? head : file_system().read_file(path, kConfigFileLimit);
}

constexpr const char* kFlat = ": nested too deeply: a configuration is flat: key = value";

// Dotted keys are the only nesting that the parser does not bound by itself: a.b.c = 1 makes a
// table in a table, and what takes such a tree down walks the stack. A key ends on its line, so the
// dots of a line bound what it can add, whatever else they stand for.
void check_dots(std::string_view text, const std::string& path) {
  constexpr std::ptrdiff_t kMostDots = 100;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    check(std::count(one.begin(), one.end(), '.') <= kMostDots, ErrorKind::file, printable(path),
          ":", line, kFlat);
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

toml::table parse_toml(std::string_view text, const std::string& path) {
  check_dots(text, path);
  try {
    return toml::parse(text, path);
  } catch (const TomlFault&) {
    throw Error(ErrorKind::file,
                concat(printable(path), ": not TOML that the parser takes: write it more simply, ",
                       "one key = value a line"));
  } catch (const toml::parse_error& error) {
    check(error.description().find("nested value depth") == std::string_view::npos, ErrorKind::file,
          printable(path), ":", error.source().begin.line, kFlat);
    const auto magic = describe_magic(text.substr(0, 512));
    check(!magic, ErrorKind::file, printable(path), ": not a configuration: got ",
          magic ? magic->what : "", ", expected TOML; ", magic ? magic->advice : "");
    // What does not look like a text (strange bytes, brackets) may still be one.
    const std::string advice =
        is_named_toml(path)
            ? ""
            : concat("; if it is a text to train on, write --data ", shell_word(path));
    throw Error(ErrorKind::file, concat(printable(path), ":", error.source().begin.line, ":",
                                        error.source().begin.column, ": not TOML: ",
                                        printable(error.description(), 300), advice));
  }
}

std::string place_words(const std::string& path, toml::source_position at) {
  return concat(printable(path), ":", at.line, ":", at.column, ": ");
}

// The entries of a table that are keys, in the order of the file; `others` are read elsewhere.
std::vector<Setting> settings_of(const toml::table& table, const std::string& path,
                                 std::initializer_list<std::string_view> others = {}) {
  struct Place {
    toml::source_position at;
    std::string_view name;
    const toml::node* node;
  };
  std::vector<Place> places;
  for (const auto& [name, node] : table) {
    if (std::find(others.begin(), others.end(), name.str()) != others.end()) continue;
    places.push_back({name.source().begin, name.str(), &node});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
  });
  std::vector<Setting> settings;
  for (const Place& place : places) {
    const std::string start = place_words(path, place.at);
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

// The name of an arm becomes a part of file names.
void check_arm_name(const std::string& name, const std::string& where) {
  constexpr std::size_t kLongest = 64;
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("+-_.").find(c) != std::string_view::npos;
  };
  check(!name.empty() && name.size() <= kLongest && name[0] != '.' && name[0] != '-' &&
            std::all_of(name.begin(), name.end(), fits),
        ErrorKind::usage, where, "name: got ", in_quotes(name), ", expected 1 to ", kLongest,
        " of a-z, A-Z, 0-9, + - _ . with no - or . at the start");
}

void check_not_own(const std::vector<Setting>& settings, const char* key, const char* advice) {
  for (const Setting& s : settings) {
    check(s.key != key, ErrorKind::usage, s.where, ": not a key of this place; ", advice);
  }
}

ExperimentFile::Arm arm_of(const toml::table& table, const std::string& path) {
  const std::string start = place_words(path, table.source().begin);
  const toml::node* name = table.get("name");
  check(name != nullptr && name->is_string(), ErrorKind::usage, start,
        "[[arm]]: name is missing; give each arm name = \"...\"");
  ExperimentFile::Arm arm{name->as_string()->get(), settings_of(table, path, {"name"})};
  check_arm_name(arm.name, place_words(path, name->source().begin));
  check_not_own(arm.settings, "seed", "write seeds = [1, 2, 3] above the arms");
  check_not_own(arm.settings, "out_dir", "write out_dir above the arms, each run gets its own");
  return arm;
}

}  // namespace

std::vector<Setting> parse_config(std::string_view text, const std::string& path) {
  return settings_of(parse_toml(text, path), path);
}

std::vector<Setting> read_config_file(const std::string& path) {
  return parse_config(read_toml(path), path);
}

ExperimentFile parse_experiment(std::string_view text, const std::string& path) {
  const toml::table table = parse_toml(text, path);
  ExperimentFile out;
  out.common = settings_of(table, path, {"arm", "seeds"});
  check_not_own(out.common, "seed", "write seeds = [1, 2, 3]");

  const toml::node* seeds = table.get("seeds");
  const RawValue list = seeds == nullptr ? RawValue(OtherValue{}) : raw_value(*seeds);
  const auto* numbers = std::get_if<std::vector<std::int64_t>>(&list);
  check(numbers != nullptr && !numbers->empty() && numbers->size() <= kMostRuns, ErrorKind::usage,
        printable(path), ": seeds: expected a list of integers; write seeds = [1, 2, 3]");
  out.seeds = *numbers;
  for (auto seed = out.seeds.begin(); seed != out.seeds.end(); ++seed) {
    check(*seed >= 0 && std::find(out.seeds.begin(), seed, *seed) == seed, ErrorKind::usage,
          printable(path), ": seeds: got ", *seed, ", expected different integers of 0 or more");
  }

  const toml::node* node = table.get("arm");
  const toml::array* arms = node == nullptr ? nullptr : node->as_array();
  check(arms != nullptr && !arms->empty() && arms->is_homogeneous(toml::node_type::table),
        ErrorKind::usage, printable(path),
        ": no arms; write [[arm]] with name = \"...\" and what the arm changes, once per arm");
  check(arms->size() <= kMostRuns / out.seeds.size(), ErrorKind::usage, printable(path),
        ": too many runs: got ", arms->size(), " arms x ", out.seeds.size(),
        " seeds, expected at most ", kMostRuns);
  for (const toml::node& arm : *arms) {
    out.arms.push_back(arm_of(*arm.as_table(), path));
    for (std::size_t i = 0; i + 1 < out.arms.size(); ++i) {
      check(out.arms[i].name != out.arms.back().name, ErrorKind::usage,
            place_words(path, arm.source().begin), "[[arm]]: two arms have the name ",
            in_quotes(out.arms[i].name), "; each needs its own");
    }
  }
  return out;
}

ExperimentFile read_experiment_file(const std::string& path) {
  return parse_experiment(read_toml(path), path);
}

}  // namespace duet
