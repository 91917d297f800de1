// duet profile --replay: a recorded memory trace through this build's policy.
#pragma once

#include <string>

namespace duet {

// Prints what the requests of the trace at `path` (runtime/memory_trace.h) reserve, and who owns
// the peak; writes the figures as JSON unless `json_path` is empty. Returns the exit code. Throws
// Error(file) if the trace is malformed.
int profile_replay(const std::string& path, const std::string& json_path);

}  // namespace duet
