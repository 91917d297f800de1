// One table per enum of the configuration: the words that users write. Parsing, printing and the
// list of accepted forms all read it.
//
//   enum_name(Family::gpt2)                    // "gpt2"
//   enum_from_name<Family>("gpt2")             // Family::gpt2; nullopt for an unknown word
//   accepted_names<Family>()                   // "llama | gpt2"
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "models/config.h"

namespace duet {

template <class E, std::size_t N>
using EnumTable = std::array<std::pair<E, std::string_view>, N>;

// Specialised for every enum below; another room specialises it for its own.
template <class E>
inline constexpr int kEnumNames = 0;

template <>
inline constexpr EnumTable<Family, 2> kEnumNames<Family>{
    {{Family::llama, "llama"}, {Family::gpt2, "gpt2"}}};
template <>
inline constexpr EnumTable<Activation, 3> kEnumNames<Activation>{
    {{Activation::swiglu, "swiglu"},
     {Activation::gelu, "gelu"},
     {Activation::gelu_tanh, "gelu_tanh"}}};
template <>
inline constexpr EnumTable<Scoring, 3> kEnumNames<Scoring>{
    {{Scoring::softmax, "softmax"}, {Scoring::diff, "diff"}, {Scoring::diff_v2, "diff_v2"}}};
template <>
inline constexpr EnumTable<CouplingKind, 8> kEnumNames<CouplingKind>{
    {{CouplingKind::none, "none"},
     {CouplingKind::euler, "euler"},
     {CouplingKind::leapfrog, "leapfrog"},
     {CouplingKind::symplectic_euler, "symplectic-euler"},
     {CouplingKind::uncoupled, "uncoupled"},
     {CouplingKind::uncoupled_k, "uncoupled-k"},
     {CouplingKind::affine, "affine"},
     {CouplingKind::hamiltonian_potential, "hamiltonian-potential"}}};
template <>
inline constexpr EnumTable<CouplingSharing, 3> kEnumNames<CouplingSharing>{
    {{CouplingSharing::head, "head"},
     {CouplingSharing::layer, "layer"},
     {CouplingSharing::model, "model"}}};
template <>
inline constexpr EnumTable<CouplingDtMode, 3> kEnumNames<CouplingDtMode>{
    {{CouplingDtMode::raw, "raw"},
     {CouplingDtMode::softplus, "softplus"},
     {CouplingDtMode::fixed, "fixed"}}};
template <>
inline constexpr EnumTable<CouplingRope, 2> kEnumNames<CouplingRope>{
    {{CouplingRope::before, "before"}, {CouplingRope::after, "after"}}};
template <>
inline constexpr EnumTable<RecomputeMode, 4> kEnumNames<RecomputeMode>{
    {{RecomputeMode::none, "none"},
     {RecomputeMode::mlp, "mlp"},
     {RecomputeMode::attn, "attn"},
     {RecomputeMode::block, "block"}}};

template <class E>
constexpr std::string_view enum_name(E value) {
  for (const auto& [candidate, word] : kEnumNames<E>) {
    if (candidate == value) return word;
  }
  return "?";
}

template <class E>
constexpr std::optional<E> enum_from_name(std::string_view word) {
  for (const auto& [value, candidate] : kEnumNames<E>) {
    if (candidate == word) return value;
  }
  return std::nullopt;
}

template <class E>
std::string accepted_names() {
  std::string out;
  for (const auto& [value, word] : kEnumNames<E>) {
    out.append(out.empty() ? "" : " | ").append(word);
  }
  return out;
}

}  // namespace duet
