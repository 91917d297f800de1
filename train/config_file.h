// A configuration file: flat TOML, read into settings that still know where they stood.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/config_keys.h"

namespace duet {

inline constexpr std::int64_t kConfigFileLimit = std::int64_t{1} << 20;

// Throws Error(file) for a file that is missing, longer than kConfigFileLimit, or no TOML (with
// line and column), Error(usage) for a table or a name that is no key.
std::vector<Setting> read_config_file(const std::string& path);

// The same from text; `path` is named in messages.
std::vector<Setting> parse_config(std::string_view text, const std::string& path);

}  // namespace duet
