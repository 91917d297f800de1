// Ids that kernels found out of range. A kernel cannot throw, and nothing is read on the host
// inside a step: the first bad id is noted in device memory and thrown at the next look.
//
//   GPU_LAUNCH(check_kernel, ..., cuda::index_source("embedding: ids"), cuda::bad_index());
//   cuda::check_error_flag();  // later, where the host waits for the GPU anyway
//
// No vendor header: files without one may call check_error_flag() too, in every build.
#pragma once

#include <cstdint>

namespace duet::cuda {

// The note: what[position] = id is outside [0, bound). Kernels write it only where `source` is 0,
// so that the first launch with a bad id keeps it.
struct BadIndex {
  std::int64_t source;  // from index_source(); 0: nothing is wrong
  std::int64_t position;
  std::int64_t id;
  std::int64_t bound;
};

// The note in device memory, for kernels that are launched next. Makes check_error_flag() look.
BadIndex* bad_index();

// The number, above 0, under which a note tells `what` was checked, e.g. "embedding: ids".
std::int64_t index_source(const char* what);

// Waits for the stream, forgets the note and throws Error(index) if there is one: the text of the
// same error on the cpu, and "(found on the GPU)". Does nothing, and does not wait, where no kernel
// that may note something was launched since the last look. Every copy to the host and every
// synchronize() looks; a kernel that must not act on such an id may look at bad_index() itself.
void check_error_flag();

}  // namespace duet::cuda
