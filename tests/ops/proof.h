// The whole proof of a row: every check in turn, and for what fails, the kind of the fault in plain
// words.
//
//   if (const auto fault = first_fault(row)) std::cout << fault->kind << ": " << fault->message;
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/ops/op_case.h"

namespace duet::test {

struct Check {
  const char* name;
  std::string (*run)(const OpCase&);
  const char* kind;  // of what it finds, unless experiments with the row tell more
  // Null: it runs on every device. Else why it runs on the cpu alone.
  const char* cpu_only = nullptr;
};
// In the order in which the first to fail says most: an op that is not deterministic fails others
// as well, and they would call it something else.
const std::vector<Check>& all_checks();
bool runs_on(const Check& check, Device device);

struct Fault {
  std::string check;    // "gradients"
  std::string kind;     // "wrong sign of the gradient of input 0"
  std::string message;  // row, tensor, element, got, expected
};
// On test_device() (tests/ops/harness.h). Throws nothing that the op throws: an unexpected Error is
// a fault.
std::optional<Fault> first_fault(const OpCase& row);

// diagnosis.cpp: runs the row in other ways to find out what is wrong with it.
std::string kind_of(const Check& check, const OpCase& row, const std::string& message);

}  // namespace duet::test
