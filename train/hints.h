// Likely mistakes of a run, in words, before it starts. A hint never stops anything.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"
#include "train/reporter.h"

namespace duet {

std::vector<std::string> hints(const ResolvedConfig& config, const StartReport& start);

}  // namespace duet
