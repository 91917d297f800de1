// CUDA's atomic functions on global and shared memory. In the simulator one CUDA thread runs at a
// time, so they are atomic anyhow; as C++ atomics ThreadSanitizer does not take them for races.
#pragma once

#include <atomic>
#include <type_traits>

namespace sim {

// `change` of the old value is stored, the old value returned.
template <class T, class Change>
T atomic_change(T* address, Change change) {
  const std::atomic_ref<T> value(*address);
  T old = value.load(std::memory_order_relaxed);
  while (!value.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

template <class T>
concept Integer = std::is_integral_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);
template <class T>
concept Number = Integer<T> || std::is_same_v<T, float> || std::is_same_v<T, double>;

}  // namespace sim

template <sim::Number T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return static_cast<T>(old + value); });
}
template <sim::Integer T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return static_cast<T>(old - value); });
}
template <sim::Integer T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return old > value ? old : value; });
}
template <sim::Integer T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return old < value ? old : value; });
}
template <sim::Integer T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return static_cast<T>(old & value); });
}
template <sim::Integer T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return static_cast<T>(old | value); });
}
template <class T>
requires(sim::Integer<T> || std::is_same_v<T, float>) T
    atomicExch(T* address, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T) { return value; });
}
template <sim::Integer T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return sim::atomic_change(address, [=](T old) { return old == expected ? value : old; });
}
