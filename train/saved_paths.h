// A run that is resumed from another directory than it began in: its relative paths lead nowhere.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace duet {

// Throws Error(file) if a path that comes from the saved configuration (data, val_data, tokenizer)
// names no file: with that path, the directory it was relative to, and the command that mends it,
// which is the user's `arguments` of train and one flag more.
void check_saved_paths(const ResolvedConfig& config, const std::vector<std::string>& arguments);

}  // namespace duet
