// Proves the op with the checks that Duet's own ops pass.
#include <cmath>
#include <cstdio>
#include <string>

#include "softcap.h"
#include "tests/ops/oracle.h"
#include "tests/ops/proof.h"

namespace {

using duet::test::OpCase;
using duet::test::Tensors;
using duet::test::Values;

// Inputs, the call, and the same in plain double loops.
OpCase softcap_row(const std::string& name, const duet::Shape& x, const duet::Shape& c) {
  OpCase row;
  row.name = name;
  row.inputs = {x, c};
  row.call = [](const Tensors& in) { return Tensors{example::softcap(in[0], in[1])}; };
  row.oracle = [](const Tensors& in) {
    Values y = duet::test::elements(in[0]);
    const Values c_values = duet::test::elements(in[1]);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto at = duet::test::index_of(in[0].shape(), static_cast<std::int64_t>(i));
      const double cap = c_values[duet::test::position(in[1].shape(), at)];
      y[i] = cap * std::tanh(y[i] / cap);
    }
    return Tensors{duet::test::tensor_of(in[0].shape(), y)};
  };
  row.low = 0.5;  // of x and c: c must not be near 0
  row.high = 3;
  row.saved_bytes = (x.numel() + c.numel()) * 4;
  return row;
}

}  // namespace

int main() {
  int faults = 0;
  for (const OpCase& row :
       {softcap_row("softcap", {3, 5}, {}), softcap_row("softcap_row", {4, 5}, {5}),
        softcap_row("softcap_column", {4, 5}, {4, 1})}) {
    const auto fault = duet::test::first_fault(row);
    if (!fault) continue;
    std::printf("%s: %s: %s\n", row.name.c_str(), fault->kind.c_str(), fault->message.c_str());
    ++faults;
  }
  std::printf("softcap: %d faults\n", faults);
  return faults == 0 ? 0 : 1;
}
