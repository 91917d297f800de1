// AdamW and sums of squares on the CPU: Highway for f32, a plain loop for f64.
#include <algorithm>
#include <cmath>

#include "runtime/cpu/parallel.h"
#include "train/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/optimizer_cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace duet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void adamw_f32(const AdamWPiece& piece, const AdamWScalars& s, double scale) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto grad_scale = hn::Set(d, static_cast<float>(scale));
  const auto beta1 = hn::Set(d, static_cast<float>(s.beta1));
  const auto beta2 = hn::Set(d, static_cast<float>(s.beta2));
  const auto rest1 = hn::Set(d, static_cast<float>(1 - s.beta1));
  const auto rest2 = hn::Set(d, static_cast<float>(1 - s.beta2));
  const auto keep = hn::Set(d, piece.decay ? static_cast<float>(s.keep) : 1.0F);
  const auto step_size = hn::Set(d, static_cast<float>(s.step_size));
  const auto v_scale = hn::Set(d, static_cast<float>(s.v_scale));
  const auto eps = hn::Set(d, static_cast<float>(s.eps));
  const auto update = [&](float* w_at, const float* g_at, float* m_at, float* v_at) {
    const auto g = hn::Mul(hn::LoadU(d, g_at), grad_scale);
    const auto m = hn::MulAdd(beta1, hn::LoadU(d, m_at), hn::Mul(rest1, g));
    const auto v = hn::MulAdd(beta2, hn::LoadU(d, v_at), hn::Mul(rest2, hn::Mul(g, g)));
    const auto denominator = hn::MulAdd(hn::Sqrt(v), v_scale, eps);
    const auto w = hn::Mul(hn::LoadU(d, w_at), keep);
    hn::StoreU(m, d, m_at);
    hn::StoreU(v, d, v_at);
    hn::StoreU(hn::Sub(w, hn::Div(hn::Mul(step_size, m), denominator)), d, w_at);
  };
  auto* w = static_cast<float*>(piece.weight);
  const auto* g = static_cast<const float*>(piece.gradient);
  auto* m = static_cast<float*>(piece.m);
  auto* v = static_cast<float*>(piece.v);
  std::int64_t i = 0;
  for (; i + lanes <= piece.size; i += lanes) update(w + i, g + i, m + i, v + i);
  if (i == piece.size) return;
  // The tail goes through the same vector code, so an element's bits do not depend on its place.
  HWY_ALIGN float tail[4][HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::int64_t k = i; k < piece.size; ++k) {
    tail[0][k - i] = w[k];
    tail[1][k - i] = g[k];
    tail[2][k - i] = m[k];
    tail[3][k - i] = v[k];
  }
  update(tail[0], tail[1], tail[2], tail[3]);
  for (std::int64_t k = i; k < piece.size; ++k) {
    w[k] = tail[0][k - i];
    m[k] = tail[2][k - i];
    v[k] = tail[3][k - i];
  }
}

double square_sum_f32(const float* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(narrow, x + i));
    const auto x1 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + lanes));
    a = hn::MulAdd(x0, x0, a);
    b = hn::MulAdd(x1, x1, b);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

}  // namespace duet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(adamw_f32);
HWY_EXPORT(square_sum_f32);

void adamw_f64(const AdamWPiece& piece, const AdamWScalars& s, double scale) {
  auto* w = static_cast<double*>(piece.weight);
  const auto* gradient = static_cast<const double*>(piece.gradient);
  auto* m = static_cast<double*>(piece.m);
  auto* v = static_cast<double*>(piece.v);
  const double keep = piece.decay ? s.keep : 1.0;
  for (std::int64_t i = 0; i < piece.size; ++i) {
    const double g = gradient[i] * scale;
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * (g * g);
    w[i] = w[i] * keep - s.step_size * m[i] / (std::sqrt(v[i]) * s.v_scale + s.eps);
  }
}

void begin(double grad_scale, View step) {
  auto* numbers = step.as<double>();
  std::fill(numbers, numbers + kStepScalars, 0.0);
  numbers[kStepGradScale] = grad_scale;
  numbers[kStepFirstBad] = -1;
}

void adamw(const AdamWCall& call) {
  const auto* step = call.step.as<double>();
  if (step[kStepSkip] != 0) return;
  const auto update = call.dtype == DType::f64 ? adamw_f64 : HWY_DYNAMIC_DISPATCH(adamw_f32);
  parallel_chunks(static_cast<std::int64_t>(call.pieces.size()), [&](std::int64_t i) {
    update(call.pieces[static_cast<std::size_t>(i)], call.scalars, step[kStepGradScale]);
  });
}

void square_sums(DType dtype, std::span<const ValuePiece> pieces, double* sums) {
  const auto f32 = HWY_DYNAMIC_DISPATCH(square_sum_f32);
  parallel_chunks(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const ValuePiece& piece = pieces[static_cast<std::size_t>(i)];
    if (dtype == DType::f32) {
      sums[i] = f32(static_cast<const float*>(piece.data), piece.size);
      return;
    }
    const auto* x = static_cast<const double*>(piece.data);
    double total = 0;
    for (std::int64_t k = 0; k < piece.size; ++k) total += x[k] * x[k];
    sums[i] = total;
  });
}

void norm(const NormCall& call) {
  auto* step = call.step.as<double>();
  const auto* of_piece = call.sums.as<double>();
  square_sums(call.dtype, call.pieces, call.sums.as<double>());
  double total = 0;
  std::int64_t bad = -1;
  for (std::size_t i = 0; i + 1 < call.first.size(); ++i) {
    double sum = 0;
    for (std::int64_t p = call.first[i]; p < call.first[i + 1]; ++p) sum += of_piece[p];
    if (bad < 0 && is_bad_square_sum(sum, call.limit, call.clipped)) {
      bad = static_cast<std::int64_t>(i);
    }
    total += sum;
  }
  step[kStepNorm] = std::sqrt(total);
  step[kStepGradScale] = clip_factor(step[kStepNorm], call.max_norm);
  step[kStepFirstBad] = static_cast<double>(bad);
  step[kStepSkip] = bad >= 0 || !std::isfinite(step[kStepLoss]) ? 1 : 0;
}

void add_loss(ConstView loss, View step) {
  visit_floating(loss.dtype, "optimizer", [&]<class T>(TypeTag<T>) {
    step.as<double>()[kStepLoss] += static_cast<double>(*loss.as<T>());
  });
}

}  // namespace

const OptimizerKernels optimizer_cpu{&begin, &adamw, &norm, &add_loss};

}  // namespace duet
#endif  // HWY_ONCE
