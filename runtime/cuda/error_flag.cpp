#include "runtime/cuda/error_flag.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cuda/stream.h"
#include "runtime/error.h"

namespace duet::cuda {
namespace {

// Launched kernels may have noted something since the last look.
bool pending = false;

std::vector<std::string>& sources() {
  static std::vector<std::string> texts;
  return texts;
}

// Of the process, as the stream is: it counts in no allocator, so that a step's memory is the same
// before and after the first check.
BadIndex* device_note() {
  static BadIndex* const note = [] {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, sizeof(BadIndex)), "making the error flag");
    check_cuda(cudaMemsetAsync(memory, 0, sizeof(BadIndex), stream()), "clearing the error flag");
    return static_cast<BadIndex*>(memory);
  }();
  return note;
}

}  // namespace

BadIndex* bad_index() {
  pending = true;
  return device_note();
}

std::int64_t index_source(const char* what) {
  std::vector<std::string>& texts = sources();
  const auto at = std::find(texts.begin(), texts.end(), what);
  const std::int64_t number = at - texts.begin();
  if (at == texts.end()) texts.emplace_back(what);
  return number + 1;
}

void check_error_flag() {
  if (!pending) return;
  BadIndex note{};
  check_cuda(cudaMemcpyAsync(&note, device_note(), sizeof(note), cudaMemcpyDeviceToHost, stream()),
             "reading the error flag");
  check_cuda(cudaStreamSynchronize(stream()), "reading the error flag");
  pending = false;
  if (note.source == 0) return;
  check_cuda(cudaMemsetAsync(device_note(), 0, sizeof(note), stream()), "clearing the error flag");
  throw Error(ErrorKind::index,
              concat(sources()[static_cast<std::size_t>(note.source - 1)], '[', note.position,
                     "]=", note.id, " is outside [0, ", note.bound, ") (found on the GPU)"));
}

}  // namespace duet::cuda
