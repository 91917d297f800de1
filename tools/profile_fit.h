// duet profile --fit: what fits into so many bytes.
#pragma once

#include <string>

#include "tools/output.h"
#include "train/run_config.h"

namespace duet {

// Prints the largest batch of each recompute mode and the fastest settings, and writes them as JSON
// if a path is given. Throws Error(usage) for what is no size, Error(memory) where no batch fits.
int profile_fit(const RunConfig& run, const std::string& limit_text, const AnswerFile& json);

}  // namespace duet
