// The couplings that move a pair by dt and f, one struct each: what a stage does to a tile, and its
// way back. A stage evaluates f once; `kick` and `drift` say how much of dt each half of it takes.
// The outputs of a forward may lie where its inputs do.
#pragma once

#include "ops/coupling/coupling.h"
#include "ops/coupling/coupling_net.h"

namespace duet {

template <class T>
struct Stage {
  T kick, drift;
};
// Scratch [rows, h]: W1 x, which backward reads again, and silu of it.
template <class T>
struct Hidden {
  Tile<T> h, a;
};
// What backward knows of a stage: the pair before it, W1 x, and the key after it.
template <class T>
struct Known {
  Tile<const T> x, k, h, k_after;
};
template <class Math>
struct StageGradients {
  using T = typename Math::Scalar;
  Tile<const T> x, k;                            // of the pair after the stage
  Tile<T> x_out, k_out;                          // of the pair before it; may lie where x and k do
  Tile<T> g, a;                                  // scratch [rows, h]
  const typename CouplingNet<Math>::Part* part;  // null: no weight wants a gradient
};

// Explicit Euler, both from the old pair:  x' = x + dt k ; k' = k + dt f(x).
template <class Math>
struct EulerStep {
  using T = typename Math::Scalar;
  using Net = CouplingNet<Math>;
  using In = Tile<const T>;
  using Out = Tile<T>;
  static constexpr bool kHasKey = true, kInvertible = false;

  static Stage<T> stage(const CouplingSizes& /*sizes*/, std::int64_t /*index*/) { return {1, 1}; }

  static void forward(const Net& net, const Stage<T>& /*stage*/, std::int64_t rows, In x, In k,
                      const Hidden<T>& to, Out x_out, Out k_out) {
    net.project(rows, x, to.h);
    Math::add_scaled(rows, net.width, net.dt, k, x, x_out);
    Math::silu(to.h.data, rows * net.hidden, to.a.data);
    net.add_output(rows, 1, to.a, k, k_out);
  }
  // The part of the last forward that backward needs.
  static void evaluate(const Net& net, const Stage<T>& /*stage*/, std::int64_t rows, In x, In /*k*/,
                       const Hidden<T>& to, Out /*k_after*/) {
    net.project(rows, x, to.h);
  }

  // From the gradients gx', gk' of the pair after the step to those of the pair before it. With
  // g = W2^T gk' * silu'(h):
  //   gk = gk' + dt gx'          gx = gx' + dt W1^T g
  //   d(dt) += <gx', k> + <gk', f(x)>,  where <gk', f(x)> = <W2^T gk', silu(h)>
  //   dW1 += dt g x^T            dW2 += dt gk' silu(h)^T
  static void backward(const Net& net, const Stage<T>& /*stage*/, std::int64_t rows,
                       const Known<T>& known, const StageGradients<Math>& to) {
    net.pull_back(rows, to.k, to.g);
    T dot = Math::silu_backward(known.h.data, rows * net.hidden, to.g.data, to.a.data);
    if (to.part != nullptr) {
      net.add_weight_gradients(rows, 1, to.g, known.x, to.a, to.k, *to.part);
    }
    dot += Math::add_scaled_and_dot(rows, net.width, net.dt, to.x, to.k, to.k_out, known.k);
    if (to.part != nullptr) *to.part->dt += dot;
    net.add_input_gradient(rows, 1, to.g, to.x, to.x_out);
  }
};

// Kick, then drift with the new key:  k' = k + c dt f(x) ; x' = x + d dt k', c = kick, d = drift.
template <class Math>
struct KickDriftStep {
  using T = typename Math::Scalar;
  using Net = CouplingNet<Math>;
  using In = Tile<const T>;
  using Out = Tile<T>;
  static constexpr bool kHasKey = true, kInvertible = true;

  static void forward(const Net& net, const Stage<T>& stage, std::int64_t rows, In x, In k,
                      const Hidden<T>& to, Out x_out, Out k_out) {
    net.project(rows, x, to.h);
    Math::silu(to.h.data, rows * net.hidden, to.a.data);
    net.add_output(rows, stage.kick, to.a, k, k_out);
    if (stage.drift != 0) {
      Math::add_scaled(rows, net.width, stage.drift * net.dt, k_out, x, x_out);
    }
  }
  static void evaluate(const Net& net, const Stage<T>& stage, std::int64_t rows, In x, In k,
                       const Hidden<T>& to, Out k_after) {
    net.project(rows, x, to.h);
    if (stage.drift == 0) return;
    Math::silu(to.h.data, rows * net.hidden, to.a.data);
    net.add_output(rows, stage.kick, to.a, k, k_after);
  }
  // Takes the stage back:  x = x' - d dt k' in place ; h = W1 x ; k = k' - c dt f(x).
  static void invert(const Net& net, const Stage<T>& stage, std::int64_t rows, Out x, In k_after,
                     const Hidden<T>& to, Out k) {
    if (stage.drift != 0) {
      Math::add_scaled(rows, net.width, -stage.drift * net.dt, k_after, x, x);
    }
    net.project(rows, x, to.h);
    if (k.data == nullptr) return;
    Math::silu(to.h.data, rows * net.hidden, to.a.data);
    net.add_output(rows, -stage.kick, to.a, k_after, k);
  }

  // With g = W2^T gk * silu'(h):
  //   gk = gk' + d dt gx'        gx = gx' + c dt W1^T g
  //   d(dt) += d <gx', k'> + c <gk, f(x)>
  //   dW1 += c dt g x^T          dW2 += c dt gk silu(h)^T
  // Requires: without a drift, k_out lies where k does.
  static void backward(const Net& net, const Stage<T>& stage, std::int64_t rows,
                       const Known<T>& known, const StageGradients<Math>& to) {
    T dot = 0;
    if (stage.drift != 0) {
      dot = stage.drift * Math::add_scaled_and_dot(rows, net.width, stage.drift * net.dt, to.x,
                                                   to.k, to.k_out, known.k_after);
    }
    net.pull_back(rows, to.k_out, to.g);
    dot += stage.kick * Math::silu_backward(known.h.data, rows * net.hidden, to.g.data, to.a.data);
    if (to.part != nullptr) {
      net.add_weight_gradients(rows, stage.kick, to.g, known.x, to.a, to.k_out, *to.part);
      *to.part->dt += dot;
    }
    net.add_input_gradient(rows, stage.kick, to.g, to.x, to.x_out);
  }
};

// n times:  k' = k + dt f(x) ; x' = x + dt k'.
template <class Math>
struct SymplecticEulerStep : KickDriftStep<Math> {
  using T = typename Math::Scalar;
  static Stage<T> stage(const CouplingSizes& /*sizes*/, std::int64_t /*index*/) { return {1, 1}; }
};

// n times kick-drift-kick:  k½ = k + dt/2 f(x) ; x' = x + dt k½ ; k' = k½ + dt/2 f(x').
// Two half kicks that meet see the same x: one whole kick. So n + 1 stages, the last without drift.
template <class Math>
struct LeapfrogStep : KickDriftStep<Math> {
  using T = typename Math::Scalar;
  static Stage<T> stage(const CouplingSizes& sizes, std::int64_t index) {
    const bool first = index == 0, last = index == sizes.steps;
    return {first || last ? T{0.5} : T{1}, last ? T{0} : T{1}};
  }
};

// The uncoupled control:  x' = x + dt f(x). The other one of the pair is not touched.
template <class Math>
struct UncoupledStep {
  using T = typename Math::Scalar;
  using Net = CouplingNet<Math>;
  using In = Tile<const T>;
  using Out = Tile<T>;
  static constexpr bool kHasKey = false, kInvertible = false;

  static Stage<T> stage(const CouplingSizes& /*sizes*/, std::int64_t /*index*/) { return {1, 1}; }

  static void forward(const Net& net, const Stage<T>& /*stage*/, std::int64_t rows, In x, In /*k*/,
                      const Hidden<T>& to, Out x_out, Out /*k_out*/) {
    net.project(rows, x, to.h);
    Math::silu(to.h.data, rows * net.hidden, to.a.data);
    net.add_output(rows, 1, to.a, x, x_out);
  }
  static void evaluate(const Net& net, const Stage<T>& /*stage*/, std::int64_t rows, In x, In /*k*/,
                       const Hidden<T>& to, Out /*k_after*/) {
    net.project(rows, x, to.h);
  }

  // With g = W2^T gx' * silu'(h):
  //   gx = gx' + dt W1^T g       d(dt) += <gx', f(x)> = <W2^T gx', silu(h)>
  //   dW1 += dt g x^T            dW2 += dt gx' silu(h)^T
  static void backward(const Net& net, const Stage<T>& /*stage*/, std::int64_t rows,
                       const Known<T>& known, const StageGradients<Math>& to) {
    net.pull_back(rows, to.x, to.g);
    const T dot = Math::silu_backward(known.h.data, rows * net.hidden, to.g.data, to.a.data);
    if (to.part != nullptr) {
      net.add_weight_gradients(rows, 1, to.g, known.x, to.a, to.x, *to.part);
      *to.part->dt += dot;
    }
    net.add_input_gradient(rows, 1, to.g, to.x, to.x_out);
  }
};

}  // namespace duet
