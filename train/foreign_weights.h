// Weights of other programs: recognized by the names of their tensors, so that a refusal can say
// what the file is.
#pragma once

#include "runtime/safetensors.h"

namespace duet {

// Throws Error(file) naming the layout when a tensor has a name that only a layout we know has.
void refuse_foreign(const SafetensorsFile& file);

}  // namespace duet
