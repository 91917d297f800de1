// duet profile --replay: a recorded memory trace through this build's policy.
#pragma once

#include <string>

#include "tools/output.h"

namespace duet {

// Prints what the requests of the trace at `path` (runtime/memory_trace.h) reserve, and who owns
// the peak; writes the figures as JSON where that is asked for. Returns the exit code. Throws
// Error(file) if the trace is malformed.
int profile_replay(const std::string& path, const AnswerFile& json);

}  // namespace duet
