#include "runtime/device_source.h"

#include "runtime/cuda_status.h"
#include "runtime/error.h"

namespace duet {

std::unique_ptr<RawSource> make_cuda_source() {
  throw Error(ErrorKind::device,
              "allocator: no memory of cuda:0 in this build; run with --device cpu");
}

void copy_bytes(void*, Device, const void*, Device, std::size_t) { require_cuda(); }

void synchronize_cuda() { require_cuda(); }

}  // namespace duet
