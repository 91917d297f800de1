#include "train/run_record.h"

#include <algorithm>
#include <optional>

#include "runtime/error.h"
#include "runtime/file_error.h"
#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "train/checkpoint.h"
#include "train/command_line.h"
#include "train/config_file.h"

namespace duet {
namespace {

using Values = std::map<std::string, std::string>;

constexpr std::string_view kBegins = "# The record of a run of duet, xxh3 ";
constexpr std::string_view kAdvice = ": to change a setting, resume the run with its flag\n";

// The settings in the file as it is; nothing where its first line is not one of run_record().
std::optional<bool> is_whole(std::string_view text) {
  if (!text.starts_with(kBegins)) return std::nullopt;
  const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
  return text == run_record(text.substr(end));
}

Values values_of(const std::vector<Setting>& settings) {
  Values values;
  for (const Setting& s : settings) {
    if (s.key == "out_dir") continue;
    RunConfig probe;
    set_value(*find_key(s.key), s, probe);
    values[s.key] = toml_value(*find_key(s.key), probe);
  }
  return values;
}

// "\n  batch_size 4 -> 2" for every key in which the file and the checkpoint differ.
std::string changes(const Values& file, const Values& checkpoint) {
  std::string lines;
  const auto line = [&](const std::string& key, const std::string& old, const std::string& now) {
    if (old != now) lines += concat("\n  ", key, " ", printable(old), " -> ", printable(now));
  };
  const auto value = [](const Values& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("none") : found->second;
  };
  for (const auto& [key, now] : checkpoint) line(key, value(file, key), now);
  for (const auto& [key, old] : file) {
    if (!checkpoint.contains(key)) line(key, old, "none");
  }
  return lines;
}

std::vector<Setting> settings_of(const SavedSettings& saved) {
  std::string text;
  for (const auto& [key, value] : saved.settings) text += concat(key, " = ", value, "\n");
  return parse_config(text, saved.directory + "/state.json: settings");
}

}  // namespace

std::string run_record(std::string_view config_toml) {
  return concat(kBegins, hash_bytes(config_toml), kAdvice, config_toml);
}

std::map<std::string, std::string> recorded_settings(std::string_view config_toml) {
  return values_of(parse_config(config_toml, "config.toml"));
}

RunSettings read_run_settings(const std::string& out_dir) {
  const std::string path = out_dir + "/config.toml";
  const std::string shown = printable(path, 400);
  std::optional<std::vector<Setting>> file;
  std::optional<bool> whole;
  std::string fault;  // why it has no settings
  if (file_system().type(path) == FileType::missing) {
    fault = "is missing";
  } else {
    try {
      const std::string text = file_system().read_file(path, kConfigFileLimit);
      whole = is_whole(text);
      file = parse_config(text, path);
      values_of(*file);  // every value is one that the key takes
    } catch (const Error& e) {
      if (is_unreadable(e)) throw;
      file.reset();
      fault = concat("is damaged: ", e.what());
    }
    if (file && whole == true) return {*file, ""};
  }
  const std::optional<SavedSettings> saved = newest_settings(out_dir);
  if (!saved || saved->settings.empty()) {
    // A run of an older version protected nothing.
    if (file && !whole) return {*file, ""};
    throw Error(ErrorKind::file,
                concat(shown, ": ", file ? "was changed since the run wrote it" : fault, ", and ",
                       saved ? "the newest checkpoint is of a version that kept no copy"
                             : "there is no checkpoint with a copy",
                       ": expected the settings to go on with; put the file back, or start a run "
                       "in another directory",
                       saved ? concat(" from its weights: ",
                                      advised({"train", "--init_from", out_dir, "--out_dir", "PATH",
                                               "--data", "FILE"}))
                             : ""));
  }
  RunSettings out{settings_of(*saved), ""};
  const std::string lines = file ? changes(values_of(*file), saved->settings) : "";
  if (!file || !lines.empty()) {
    out.notice = concat(shown, " ", file ? "was changed since the run wrote it" : fault,
                        "; what the checkpoint ", printable(saved->directory, 400), " says holds",
                        lines.empty() ? "" : ":", lines);
  }
  return out;
}

}  // namespace duet
