// How many kernels and products a step gives the GPU, and how many bytes they are about: per memory
// scope, op and kernel. Off by default, and then a launch costs one comparison. On the cpu nothing
// is counted.
//
//   start_counting_launches();
//   ... a training step ...
//   for (const LaunchCount& c : stop_counting_launches()) ...  // {"blocks.0.attn", "rope", ...}
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/view.h"

namespace duet {

struct LaunchCount {
  std::string scope;   // "blocks.3.attn"; "" outside any
  std::string op;      // whose kernel it was: "softmax"; "" outside ops
  std::string kernel;  // "softmax_rows_kernel"
  std::uint64_t launches = 0;
  // Of the views that the op handed to its kernels, each counted once per call, under the first
  // kernel of the call. What a kernel reads twice is not in it.
  std::uint64_t bytes = 0;
};

void start_counting_launches();                     // from zero
std::vector<LaunchCount> stop_counting_launches();  // in order of their first launch

// --- For KernelTable and the launches.

inline bool counting_launches = false;   // written by the two above alone
inline const char* op_called = nullptr;  // the table of the call at work
inline std::uint64_t bytes_of_call = 0;  // that no launch has taken yet
void count_launch(const char* kernel);   // `kernel` must live for ever

// One call of an op's kernel table is at work until the end of the C++ block.
class CountedCall {
 public:
  CountedCall(const char* op, std::uint64_t bytes) {
    op_called = op;
    bytes_of_call = bytes;
  }
  ~CountedCall() {
    op_called = nullptr;
    bytes_of_call = 0;
  }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
};

// Bytes of the elements that the view reaches; 0 for a null view and for what is none.
template <class T>
std::uint64_t viewed_bytes(const T& x) {
  if constexpr (std::is_same_v<T, View> || std::is_same_v<T, ConstView>) {
    if (x.data == nullptr) return 0;
    std::uint64_t bytes = size_of(x.dtype);
    for (int d = 0; d < x.ndim(); ++d) {
      if (x.strides[d] != 0 || x.shape[d] == 0) bytes *= static_cast<std::uint64_t>(x.shape[d]);
    }
    return bytes;
  } else if constexpr (requires { x.view_bytes(); }) {
    return x.view_bytes();  // of a struct that holds views
  } else {
    return 0;
  }
}

}  // namespace duet
