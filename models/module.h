// A module is a plain struct with visit(); names, counting, saving, optimizer groups and memory
// scopes all follow from that one list.
//
//   struct Linear { Parameter weight; void visit(auto&& f) { f("weight", weight); } };
//   for_each_parameter(model, [](const std::string& name, Parameter& p) { ... });
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace duet {

// A trainable tensor: a leaf of the graph. Several matrices that are multiplied at once (q, k, v)
// share one Parameter; `parts` names its pieces along dim 0, in order.
struct Parameter : Tensor {
  struct Part {
    const char* name;   // "q_proj.weight"
    std::int64_t rows;  // of dim 0
  };

  Parameter() = default;
  explicit Parameter(Tensor value, std::vector<Part> pieces = {}, bool decayed = true)
      : Tensor(std::move(value)), parts(std::move(pieces)), decay(decayed) {
    set_requires_grad(*this);
  }

  std::vector<Part> parts;  // empty: the parameter is one piece under its own name
  bool decay = true;        // weight decay applies
};

template <class M>
concept Module = requires(M& m) {
  m.visit([](const char*, auto&) {});
};

// Calls f(path, parameter) for every defined parameter, in declaration order. A parameter with
// parts comes once, under the path of its module.
template <Module M, class F>
void for_each_parameter(M& module, F&& f, const std::string& prefix = "") {
  module.visit([&](const std::string& name, auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::same_as<Member, Parameter>) {
      if (member.defined()) f(prefix + name, member);
    } else if constexpr (Module<Member>) {
      for_each_parameter(member, f, prefix + name + ".");
    } else {  // a std::vector of modules
      for (std::size_t i = 0; i < member.size(); ++i) {
        for_each_parameter(member[i], f, prefix + name + "." + std::to_string(i) + ".");
      }
    }
  });
}

// One named piece: what checkpoints, counts and logs speak of.
struct NamedTensor {
  std::string name;  // "blocks.0.attn.q_proj.weight"
  Tensor value;      // a view of the parameter
  Parameter* owner;
  std::int64_t begin = 0, end = 0;  // rows of the owner's dim 0 (0, 0 for a 0-d owner)

  // The same rows of the owner's gradient; undefined before the first backward.
  Tensor gradient() const {
    const Tensor& g = grad(*owner);
    return g.defined() && g.ndim() > 0 ? g.slice_view(0, begin, end) : g;
  }
};

template <Module M>
std::vector<NamedTensor> named_tensors(M& module) {
  std::vector<NamedTensor> out;
  for_each_parameter(module, [&](const std::string& path, Parameter& p) {
    if (p.parts.empty()) {
      out.push_back({path, p.detach(), &p, 0, p.ndim() > 0 ? p.size(0) : 0});
      return;
    }
    const std::string prefix = path.substr(0, path.rfind('.') + 1);
    std::int64_t row = 0;
    for (const Parameter::Part& part : p.parts) {
      out.push_back(
          {prefix + part.name, p.slice_view(0, row, row + part.rows), &p, row, row + part.rows});
      row += part.rows;
    }
  });
  return out;
}

template <Module M>
std::int64_t count_parameters(M& module) {
  std::int64_t n = 0;
  for_each_parameter(module, [&](const std::string&, Parameter& p) { n += p.numel(); });
  return n;
}

}  // namespace duet
