// A configuration file: flat TOML, read into settings that still know where they stood. And an
// experiment file: the same keys for all runs, then what each arm changes.
//
//   seeds = [1, 2, 3]
//   preset = "small"
//   [[arm]]
//   name = "euler"
//   coupling = "euler"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/config_keys.h"

namespace duet {

inline constexpr std::int64_t kConfigFileLimit = std::int64_t{1} << 20;
inline constexpr std::size_t kMostRuns = 10'000;  // of an experiment: arms x seeds

// Throws Error(file) for a file that is missing, longer than kConfigFileLimit, or no TOML (with
// line and column), Error(usage) for a table or a name that is no key.
std::vector<Setting> read_config_file(const std::string& path);

// The same from text; `path` is named in messages.
std::vector<Setting> parse_config(std::string_view text, const std::string& path);

struct ExperimentFile {
  struct Arm {
    std::string name;
    std::vector<Setting> settings;
  };
  std::vector<Setting> common;
  std::vector<Arm> arms;
  std::vector<std::int64_t> seeds;
};
// Throws as read_config_file() does, and Error(usage) for a file without arms or seeds, one named
// twice, a name that is no file name, and the keys that the experiment itself sets.
ExperimentFile read_experiment_file(const std::string& path);
ExperimentFile parse_experiment(std::string_view text, const std::string& path);

}  // namespace duet
