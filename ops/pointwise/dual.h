// Dual numbers: a value and its derivative in one direction. f'(x) evaluated on Dual{x, 1} gives
// f''(x) as the derivative part, so that no op writes its second derivative down.
#pragma once

#include <cmath>

#include "runtime/dtype.h"

namespace duet {

template <class T>
struct Dual {
  T v{};  // value
  T d{};  // derivative

  Dual() = default;
  DUET_HD Dual(T value, T derivative) : v(value), d(derivative) {}
  DUET_HD explicit Dual(double constant) : v(static_cast<T>(constant)) {}
};

template <class T>
DUET_HD Dual<T> operator-(Dual<T> a) {
  return {-a.v, -a.d};
}
template <class T>
DUET_HD Dual<T> operator+(Dual<T> a, Dual<T> b) {
  return {a.v + b.v, a.d + b.d};
}
template <class T>
DUET_HD Dual<T> operator-(Dual<T> a, Dual<T> b) {
  return {a.v - b.v, a.d - b.d};
}
template <class T>
DUET_HD Dual<T> operator*(Dual<T> a, Dual<T> b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
template <class T>
DUET_HD Dual<T> operator/(Dual<T> a, Dual<T> b) {
  const T q = a.v / b.v;
  return {q, (a.d - q * b.d) / b.v};
}
// Branches follow the value.
template <class T>
DUET_HD bool operator<(Dual<T> a, Dual<T> b) {
  return a.v < b.v;
}
template <class T>
DUET_HD bool operator>(Dual<T> a, Dual<T> b) {
  return b < a;
}

template <class T>
DUET_HD bool operator<=(Dual<T> a, Dual<T> b) {
  return a.v <= b.v;
}
template <class T>
DUET_HD bool operator>=(Dual<T> a, Dual<T> b) {
  return b <= a;
}

template <class T>
DUET_HD bool is_zero(T x) {
  return x == T(0);
}
template <class T>
DUET_HD bool is_zero(Dual<T> x) {
  return is_zero(x.v) && is_zero(x.d);
}

template <class T>
DUET_HD Dual<T> abs(Dual<T> x) {
  return x.v < T(0) ? -x : x;
}
template <class T>
DUET_HD Dual<T> exp(Dual<T> x) {
  using std::exp;
  const T e = exp(x.v);
  return {e, e * x.d};
}
template <class T>
DUET_HD Dual<T> log(Dual<T> x) {
  using std::log;
  return {log(x.v), x.d / x.v};
}
template <class T>
DUET_HD Dual<T> log1p(Dual<T> x) {
  using std::log1p;
  return {log1p(x.v), x.d / (T(1) + x.v)};
}
template <class T>
DUET_HD Dual<T> sqrt(Dual<T> x) {
  using std::sqrt;
  const T root = sqrt(x.v);
  return {root, x.d / (root + root)};
}
template <class T>
DUET_HD Dual<T> tanh(Dual<T> x) {
  using std::tanh;
  const T t = tanh(x.v);
  return {t, (T(1) - t * t) * x.d};
}
template <class T>
DUET_HD Dual<T> sin(Dual<T> x) {
  using std::cos, std::sin;
  return {sin(x.v), cos(x.v) * x.d};
}
template <class T>
DUET_HD Dual<T> cos(Dual<T> x) {
  using std::cos, std::sin;
  return {cos(x.v), -sin(x.v) * x.d};
}
// An exponent that does not move needs no log(a): a may be negative then.
template <class T>
DUET_HD Dual<T> pow(Dual<T> a, Dual<T> b) {
  using std::log, std::pow;
  const T power = pow(a.v, b.v);
  const T by_a = is_zero(a.d) ? T(0) : b.v * pow(a.v, b.v - T(1)) * a.d;
  const T by_b = is_zero(b.d) ? T(0) : power * log(a.v) * b.d;
  return {power, by_a + by_b};
}
// -2 / sqrt(pi) exp(-x^2)
template <class T>
DUET_HD Dual<T> erfc(Dual<T> x) {
  using std::erfc;
  using std::exp;
  return {erfc(x.v), T(-1.1283791670955125739) * exp(-(x.v * x.v)) * x.d};
}
template <class T>
DUET_HD Dual<T> erf(Dual<T> x) {
  using std::erf;
  using std::exp;
  return {erf(x.v), T(1.1283791670955125739) * exp(-(x.v * x.v)) * x.d};
}

}  // namespace duet
