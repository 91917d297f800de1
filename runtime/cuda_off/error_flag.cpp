#include "runtime/cuda/error_flag.h"

namespace duet::cuda {

void check_error_flag() {}  // no GPU, no note

}  // namespace duet::cuda
