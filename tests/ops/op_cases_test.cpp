// Every row of the table through every check.
#include "tests/ops/op_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/checks.h"
#include "tests/ops/op_facts.h"

namespace duet::test {

void PrintTo(const OpCase* row, std::ostream* out) { *out << row->name; }

std::vector<const OpCase*> op_case_pointers() {
  std::vector<const OpCase*> out;
  for (const OpCase& row : op_cases()) out.push_back(&row);
  return out;
}

namespace {

// By pointer: gtest keeps a parameter for each of thousands of tests, and every test is a process
// that makes them all.
class Ops : public testing::TestWithParam<const OpCase*> {
 protected:
  static const OpCase& row() { return *GetParam(); }
};

TEST_P(Ops, Gradients) { EXPECT_EQ(check_gradients(row()), ""); }
TEST_P(Ops, WrongGradientsAreCaught) { EXPECT_EQ(check_wrong_gradients_are_caught(row()), ""); }
TEST_P(Ops, SameTensorTwice) { EXPECT_EQ(check_same_tensor_twice(row()), ""); }
TEST_P(Ops, OutputsUsedTwice) { EXPECT_EQ(check_outputs_used_twice(row()), ""); }
TEST_P(Ops, StridedCotangents) { EXPECT_EQ(check_strided_cotangents(row()), ""); }
TEST_P(Ops, SingleGradients) { EXPECT_EQ(check_single_gradients(row()), ""); }
TEST_P(Ops, Accumulation) { EXPECT_EQ(check_accumulation(row()), ""); }
TEST_P(Ops, Oracle) { EXPECT_EQ(check_oracle(row()), ""); }
TEST_P(Ops, Integers) { EXPECT_EQ(check_integers(row()), ""); }
TEST_P(Ops, SameBits) { EXPECT_EQ(check_same_bits(row()), ""); }
TEST_P(Ops, CallsApart) { EXPECT_EQ(check_calls_apart(row()), ""); }
TEST_P(Ops, LargeInputs) { EXPECT_EQ(check_large_inputs(row()), ""); }
TEST_P(Ops, Golden) { EXPECT_EQ(check_golden(row()), ""); }
TEST_P(Ops, SavedBytes) { EXPECT_EQ(check_saved_bytes(row()), ""); }
TEST_P(Ops, Strides) { EXPECT_EQ(check_strides(row()), ""); }
TEST_P(Ops, SmallSizes) { EXPECT_EQ(check_small_sizes(row()), ""); }
TEST_P(Ops, Errors) { EXPECT_EQ(check_errors(row()), ""); }
TEST_P(Ops, Meta) { EXPECT_EQ(check_meta(row()), ""); }

TEST(OpTable, StatesForEachOpOnWhichInputsItIsTimed) {
  for (const std::string& op : op_names()) {
    const std::vector<OpCase> rows = rows_of(op);
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](const OpCase& row) {
      return !row.bench.empty();
    })) << op;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Ops, testing::ValuesIn(op_case_pointers()),
                         [](const auto& row) { return row.param->name; });

}  // namespace
}  // namespace duet::test
