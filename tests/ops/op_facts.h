// What an op can do, found out by running its rows: for `duet op list`.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/op_case.h"

namespace duet::test {

// The ops that ops/ops.h declares, in its order.
const std::vector<std::string>& op_names();
// The op that the row belongs to: the longest of op_names() that its name begins with. Throws
// Error(internal) if there is none.
std::string op_of(const OpCase& row);
// Its rows of the table.
std::vector<OpCase> rows_of(const std::string& op);

struct OpFacts {
  std::string name;
  struct OnDevice {
    std::string device;
    std::vector<std::string> dtypes;
  };
  std::vector<OnDevice> devices;  // where f32 runs
  bool forward = false, backward = false, second_order = false;
  // In f32 on the cpu: "oneDNN gemm:jit + Highway AVX2", "plain loop", "view" (no kernel, no
  // memory); "-" where there is none.
  std::string forward_by{"-"}, backward_by{"-"};
  bool by_reference = false;  // one of oneDNN's "ref" implementations, which are far too slow
};
OpFacts facts_of(const std::string& op);

}  // namespace duet::test
