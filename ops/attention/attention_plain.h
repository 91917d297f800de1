// Attention in plain loops over rows, for f64: the formulas of attention.cpp, one query at a
// time. A unit is one key/value head of one sequence.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/attention.h"

namespace duet::attention_plain {

template <class T>
const T* row_of(const ConstView& x, std::int64_t b, std::int64_t t, std::int64_t h) {
  return x.as<T>() + b * x.stride(0) + t * x.stride(1) + h * x.stride(2);
}

template <class T>
T dot(const T* x, std::int64_t x_step, const T* y, std::int64_t y_step, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i * x_step] * y[i * y_step];
  return sum;
}

// y += factor * x, y contiguous
template <class T>
void add_scaled(T factor, const T* x, std::int64_t x_step, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i * x_step];
}

template <class T>
void forward_unit(const AttentionInputs& in, std::int64_t unit, const View& out, const View& lse) {
  const T scale = static_cast<T>(in.scale);
  const std::int64_t value_width = in.value_width();
  const std::int64_t b = unit / in.kv_heads(), kv_head = unit % in.kv_heads();
  for (std::int64_t row = 0; row < in.group() * in.queries(); ++row) {
    const std::int64_t h = kv_head * in.group() + row / in.queries(), i = row % in.queries();
    const T* q = row_of<T>(in.q, b, i, h);
    T* y = out.as<T>() + ((b * in.queries() + i) * in.heads() + h) * value_width;
    std::fill(y, y + value_width, T(0));
    T max = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::int64_t j = in.first_key(b, i); j < in.last_key(i); ++j) {
      const T s = scale * dot(q, in.q.stride(3), row_of<T>(in.k, b, j, kv_head), in.k.stride(3),
                              in.width());
      if (s > max) {  // what was summed so far shrinks to the new maximum
        const T shrink = std::exp(max - s);
        sum *= shrink;
        for (std::int64_t c = 0; c < value_width; ++c) y[c] *= shrink;
        max = s;
      }
      const T p = std::exp(s - max);
      sum += p;
      add_scaled(p, row_of<T>(in.v, b, j, kv_head), in.v.stride(3), y, value_width);
    }
    const bool seen = sum != 0;
    for (std::int64_t c = 0; c < value_width; ++c) y[c] = seen ? y[c] / sum : T(0);
    lse.as<T>()[(b * in.heads() + h) * in.queries() + i] = seen ? max + std::log(sum) : T(0);
  }
}

template <class T>
void backward_unit(const AttentionInputs& in, std::int64_t unit, const ConstView& out,
                   const ConstView& lse, const ConstView& grad_out, const AttentionGrads& grads) {
  const T scale = static_cast<T>(in.scale);
  const std::int64_t width = in.width(), value_width = in.value_width();
  const std::int64_t queries = in.queries(), heads = in.heads(), kv_heads = in.kv_heads();
  const std::int64_t b = unit / kv_heads, kv_head = unit % kv_heads;
  for (std::int64_t j = 0; j < in.keys(); ++j) {
    const std::int64_t at = (b * in.keys() + j) * kv_heads + kv_head;
    if (grads.dk.data) std::fill_n(grads.dk.as<T>() + at * width, width, T(0));
    if (grads.dv.data) std::fill_n(grads.dv.as<T>() + at * value_width, value_width, T(0));
  }
  for (std::int64_t row = 0; row < in.group() * queries; ++row) {
    const std::int64_t h = kv_head * in.group() + row / queries, i = row % queries;
    const std::int64_t at = (b * queries + i) * heads + h;
    const T* q = row_of<T>(in.q, b, i, h);
    const T* dy = row_of<T>(grad_out, b, i, h);
    const T delta = dot(dy, grad_out.stride(3), out.as<T>() + at * value_width, 1, value_width);
    const T row_lse = lse.as<T>()[(b * heads + h) * queries + i];
    if (grads.dq.data) std::fill_n(grads.dq.as<T>() + at * width, width, T(0));
    for (std::int64_t j = in.first_key(b, i); j < in.last_key(i); ++j) {
      const T* k = row_of<T>(in.k, b, j, kv_head);
      const T* v = row_of<T>(in.v, b, j, kv_head);
      const std::int64_t kv_at = (b * in.keys() + j) * kv_heads + kv_head;
      const T s = scale * dot(q, in.q.stride(3), k, in.k.stride(3), width);
      const T p = std::exp(s - row_lse);
      const T dp = dot(dy, grad_out.stride(3), v, in.v.stride(3), value_width);
      const T ds = scale * p * (dp - delta);
      if (grads.dq.data) add_scaled(ds, k, in.k.stride(3), grads.dq.as<T>() + at * width, width);
      if (grads.dk.data) add_scaled(ds, q, in.q.stride(3), grads.dk.as<T>() + kv_at * width, width);
      if (grads.dv.data) {
        add_scaled(p, dy, grad_out.stride(3), grads.dv.as<T>() + kv_at * value_width, value_width);
      }
    }
  }
}

}  // namespace duet::attention_plain
