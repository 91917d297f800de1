// The configuration of a run, put together: defaults, preset and task < checkpoint or saved run <
// file < flags, with the source of every value.
//
//   ResolvedConfig config = resolve_config({.file = "run.toml", .flags = flags});
//   train(config.run, {.run_files = {{"config.toml", config_toml(config)}}});
#pragma once

#include <string>
#include <vector>

#include "train/config_keys.h"

namespace duet {

// The task's defaults win over a preset's, but a checkpoint may silently have others.
enum class ConfigSource : std::uint8_t { standard, task, preset, checkpoint, saved, file, flag };

struct ConfigRequest {
  std::string file;  // empty: none
  std::vector<Setting> flags;
  bool resume = false;  // out_dir/config.toml is the base
};

struct ResolvedConfig {
  RunConfig run;
  std::vector<ConfigSource> sources;  // parallel to config_keys()
  std::string file;                   // the configuration file, for print
  std::vector<std::string> changes;   // of a resumed run: "learning_rate 0.001 -> 0.0005"
  std::string notice;                 // of a resumed run whose config.toml is not as it was

  ConfigSource source(std::string_view key) const;
  bool given(std::string_view key) const;  // by the user, now or when the run began
};

// Reads what the request names and checks every value and how they fit together; writes nothing.
// Throws Error(usage or file) naming key, value and accepted form; for a resumed run, or one that
// starts from a checkpoint, the list of keys that would change the model.
ResolvedConfig resolve_config(const ConfigRequest& request);

// The files that a command with this configuration reads.
std::vector<std::string> input_files(const ResolvedConfig& config);

// Throws Error(usage) if `output` is one of `inputs`, by whatever path: `what` begins the message.
void refuse_input(std::string_view what, const std::string& output,
                  const std::vector<std::string>& inputs);

// Every key that has a value, as a TOML file; its source, or all that is derived, as a comment.
std::string config_toml(const ResolvedConfig& config);

// One line per key: name, accepted form, default, meaning.
std::string config_help(KeyFilter listed = every_key);

}  // namespace duet
