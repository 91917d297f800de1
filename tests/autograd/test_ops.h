// Small ops that the autograd tests run on: their code is short enough to be seen to be right.
#pragma once

#include <pthread.h>

#include <functional>

#include "autograd/op.h"
#include "runtime/memory_ops.h"

namespace duet::test {

// y = a + b. dy is handed to both, shared.
struct Plus {
  static constexpr const char* name = "plus";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    Tensor y = clone(a);
    accumulate(y, b);
    return y;
  }
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy) const { return {dy, dy}; }
};
inline Tensor plus(const Tensor& a, const Tensor& b) { return apply(Plus{}, a, b); }

// y = x, a copy. dx = dy
struct Same {
  static constexpr const char* name = "same";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
  Tensor backward(const Saved&, const Tensor& dy) const { return dy; }
};
inline Tensor same(const Tensor& x) { return apply(Same{}, x); }

// y = x^2 of one f64 element, keeping x. dx = 2 x dy
struct Square {
  static constexpr const char* name = "square";
  struct Saved {
    SavedTensor x;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x.save_input(x);
    return Tensor::full({}, x.item() * x.item(), DType::f64);
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    return Tensor::full({}, 2 * saved.x.get(name).item() * dy.item(), DType::f64);
  }
};
inline Tensor square(const Tensor& x) { return apply(Square{}, x); }

inline Tensor leaf(double value, const Shape& shape = {}) {
  Tensor t = Tensor::full(shape, value, DType::f64);
  set_requires_grad(t);
  return t;
}

// The text of the Error that `f` throws; "" if none.
inline std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Runs `f` in a thread whose stack has 256 KB.
inline void on_small_stack(std::function<void()> f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  const int failed = pthread_create(
      &thread, &attributes,
      [](void* body) -> void* {
        (*static_cast<std::function<void()>*>(body))();
        return nullptr;
      },
      &f);
  pthread_attr_destroy(&attributes);
  check(failed == 0, ErrorKind::internal, "on_small_stack: no thread");
  pthread_join(thread, nullptr);
}

}  // namespace duet::test
