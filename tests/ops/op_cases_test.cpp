// Every row of the table through every check.
#include "tests/ops/op_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/checks.h"
#include "tests/ops/op_facts.h"

namespace duet::test {

void PrintTo(const OpCase& row, std::ostream* out) { *out << row.name; }

namespace {

class Ops : public testing::TestWithParam<OpCase> {};

TEST_P(Ops, Gradients) { EXPECT_EQ(check_gradients(GetParam()), ""); }
TEST_P(Ops, WrongGradientsAreCaught) {
  EXPECT_EQ(check_wrong_gradients_are_caught(GetParam()), "");
}
TEST_P(Ops, SameTensorTwice) { EXPECT_EQ(check_same_tensor_twice(GetParam()), ""); }
TEST_P(Ops, OutputsUsedTwice) { EXPECT_EQ(check_outputs_used_twice(GetParam()), ""); }
TEST_P(Ops, StridedCotangents) { EXPECT_EQ(check_strided_cotangents(GetParam()), ""); }
TEST_P(Ops, SingleGradients) { EXPECT_EQ(check_single_gradients(GetParam()), ""); }
TEST_P(Ops, Accumulation) { EXPECT_EQ(check_accumulation(GetParam()), ""); }
TEST_P(Ops, Oracle) { EXPECT_EQ(check_oracle(GetParam()), ""); }
TEST_P(Ops, Integers) { EXPECT_EQ(check_integers(GetParam()), ""); }
TEST_P(Ops, SameBits) { EXPECT_EQ(check_same_bits(GetParam()), ""); }
TEST_P(Ops, CallsApart) { EXPECT_EQ(check_calls_apart(GetParam()), ""); }
TEST_P(Ops, LargeInputs) { EXPECT_EQ(check_large_inputs(GetParam()), ""); }
TEST_P(Ops, Golden) { EXPECT_EQ(check_golden(GetParam()), ""); }
TEST_P(Ops, SavedBytes) { EXPECT_EQ(check_saved_bytes(GetParam()), ""); }
TEST_P(Ops, Strides) { EXPECT_EQ(check_strides(GetParam()), ""); }
TEST_P(Ops, SmallSizes) { EXPECT_EQ(check_small_sizes(GetParam()), ""); }
TEST_P(Ops, Errors) { EXPECT_EQ(check_errors(GetParam()), ""); }
TEST_P(Ops, Meta) { EXPECT_EQ(check_meta(GetParam()), ""); }

TEST(OpTable, StatesForEachOpOnWhichInputsItIsTimed) {
  for (const std::string& op : op_names()) {
    const std::vector<OpCase> rows = rows_of(op);
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](const OpCase& row) {
      return !row.bench.empty();
    })) << op;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Ops, testing::ValuesIn(op_cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace duet::test
