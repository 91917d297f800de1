// config.toml of a run: what it was told, kept as safe as a checkpoint. The first line holds a hash
// of the rest, and every checkpoint has the same settings in its state.json.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "train/config_keys.h"

namespace duet {

// The file that a run writes, from the text of its configuration.
std::string run_record(std::string_view config_toml);

// What a configuration says, as TOML, key by key; out_dir is left out, because a run may move.
std::map<std::string, std::string> recorded_settings(std::string_view config_toml);

struct RunSettings {
  std::vector<Setting> settings;
  std::string notice;  // what is not as the run left it, key by key; empty: all is
};
// Settings of the run in out_dir. A config.toml that is missing, cut off or edited is mended from
// the newest checkpoint. Throws Error(file) where there is none that knows.
RunSettings read_run_settings(const std::string& out_dir);

}  // namespace duet
