// The record of where a run happened: out_dir/env.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/device_choice.h"

namespace duet {

std::string_view version();  // "0.1.0"
std::string compiler();      // "GCC 12.2.0"
// "2 (CPU affinity 2, no cgroup quota)"
std::string threads_reason();

// What a plan depends on: "cpu (oneDNN 2.6.3 on AVX2, 2 threads)", "cuda". Device: cpu or cuda, or
// the meta device that stands for one.
std::string planned_for_words(Device device);

// Empty where it is gone.
std::string current_directory();

std::string env_json(const std::vector<std::string>& command_line, const DeviceChoice& choice);

}  // namespace duet
