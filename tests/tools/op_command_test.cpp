// duet op as a process: the list holds every op, every op passes its proof, and misuse is refused.
#include "tests/tools/process.h"
#include "train/device_choice.h"

namespace duet::test {
namespace {

class OpCommandTest : public CommandTest {};

// The functions that ops.h declares, read apart from the build's own way.
std::vector<std::string> declared_ops() {
  std::vector<std::string> ops;
  std::istringstream text(read_all(fs::path(DUET_SOURCE_DIR) / "ops/ops.h"));
  for (std::string line; std::getline(text, line);) {
    const std::size_t open = line.find('(');
    const bool declares = line.rfind("Tensor ", 0) == 0 || line.rfind("std::array<Tensor", 0) == 0;
    if (!declares || open == std::string::npos) continue;
    const std::size_t space = line.rfind(' ', open);
    const std::string name = line.substr(space + 1, open - space - 1);
    if (ops.empty() || ops.back() != name) ops.push_back(name);
  }
  return ops;
}

// The line of the table that begins with the word.
std::string line_of(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(word + ' ', 0) == 0) return line;
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(OpCommandTest, ListsEveryOpOfOpsH) {
  const Ended list = duet({"op", "list"});
  ASSERT_EQ(list.code, 0) << list.err;
  const std::vector<std::string> ops = declared_ops();
  ASSERT_GE(ops.size(), 38U);
  for (const std::string& op : ops) EXPECT_NE(line_of(list.out, op), "") << op;
  const std::string count = std::to_string(ops.size());
  EXPECT_TRUE(has(list.out, std::string("\n").append(count).append(" ops."))) << list.out;

  EXPECT_TRUE(has(line_of(list.out, "matmul"), "oneDNN ")) << list.out;
  EXPECT_TRUE(has(line_of(list.out, "silu"), "Highway ")) << list.out;
  EXPECT_TRUE(has(line_of(list.out, "exp"), "plain loop")) << list.out;
  EXPECT_TRUE(has(line_of(list.out, "transpose"), "view")) << list.out;
  EXPECT_TRUE(has(line_of(list.out, "transpose"), "f32 f64 bf16 f16 i32 i64 u8")) << list.out;
  EXPECT_TRUE(has(line_of(list.out, "rope_table"), " no ")) << list.out;  // no gradient
  if (!kCudaBuild) {
    EXPECT_TRUE(has(line_of(list.out, "silu"), " cpu meta ")) << list.out;
    EXPECT_TRUE(has(line_of(list.out, "silu"), " f32 f64  ")) << list.out;
    EXPECT_FALSE(has(list.out, "cuda")) << list.out;
  }
  EXPECT_FALSE(has(list.out, "REF")) << list.out;
}

TEST_F(OpCommandTest, EveryOpPassesItsProof) {
  const Ended check = duet({"op", "check", "--no-bench"});
  EXPECT_EQ(check.code, 0) << check.out << check.err;
  EXPECT_TRUE(has(check.out, ": no fault\n")) << check.out;
  EXPECT_FALSE(has(check.out, "skipped")) << check.out;
  for (const std::string& op : declared_ops()) {
    EXPECT_TRUE(has(line_of(check.out, op), " ok ")) << op << '\n' << check.out;
  }
}

TEST_F(OpCommandTest, OneOpOrOneRowWithOtherInputsAndItsSpeed) {
  const Ended op = duet({"op", "check", "silu", "--seed", "7"});
  EXPECT_EQ(op.code, 0) << op.out << op.err;
  EXPECT_TRUE(has(line_of(op.out, "silu"), " 3 rows")) << op.out;
  EXPECT_TRUE(has(line_of(op.out, "silu"), " % of a copy")) << op.out;
  EXPECT_TRUE(has(op.out, "this machine now: a product ")) << op.out;
  EXPECT_TRUE(has(line_of(op.out, "silu"), " % of a copy of the same size (")) << op.out;
  EXPECT_FALSE(has(op.out, "no second gradient")) << op.out;
  EXPECT_TRUE(has(op.out, "\n1 op, 3 rows, ")) << op.out;
  const Ended view = duet({"op", "check", "slice"});
  EXPECT_TRUE(has(line_of(view.out, "slice"), " GB/s); a view made in ")) << view.out;
  const Ended row = duet({"op", "check", "silu_odd", "--no-bench"});
  EXPECT_EQ(row.code, 0) << row.out << row.err;
  EXPECT_TRUE(has(line_of(row.out, "silu"), " 1 row ")) << row.out;
  // The first row has the name of its op.
  const Ended first = duet({"op", "check", "--row", "silu", "--no-bench"});
  EXPECT_EQ(first.code, 0) << first.out << first.err;
  EXPECT_TRUE(has(first.out, "\n1 op, 1 row, ")) << first.out;
  const Ended lacks = duet({"op", "check", "--row", "attention", "--no-bench"});
  EXPECT_TRUE(has(line_of(lacks.out, "attention"), " no second gradient")) << lacks.out;
}

TEST_F(OpCommandTest, MisuseIsRefused) {
  const auto refused = [&](const std::vector<std::string>& arguments, int code,
                           const std::string& message) {
    const Ended ended = duet(arguments);
    EXPECT_EQ(ended.code, code) << ended.out;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(ended.err, "error: " + message + "\n");
  };
  refused({"op", "check", "slu"}, 2, "duet op check: no such op: got \"slu\"; did you mean silu?");
  refused({"op", "check", "--row", "silu_odx"}, 2,
          "--row: no such row: got \"silu_odx\"; did you mean silu_odd?");
  refused({"op", "check", "silu", "--device", "tpu"}, 2,
          "--device: got \"tpu\", expected one of auto, cpu, cuda; did you mean cpu?");
  refused({"op", "check", "silu", "--device", "auto"}, 2,
          "--device: got \"auto\", expected cpu or cuda");
  if (!kCudaBuild) {
    refused({"op", "check", "silu", "--device", "cuda"}, 2,
            "device: this build has no CUDA: got cuda, expected auto or cpu; run with "
            "--device cpu, or build with -DDUET_CUDA=ON for a GPU");
  }
  refused({"op", "check", "silu", "--seed", "x"}, 2,
          "--seed: got \"x\", expected an integer in [0, 1000000000]");
}

TEST_F(OpCommandTest, HelpSaysWhatThereIs) {
  const Ended op = duet({"op", "--help"});
  EXPECT_EQ(op.code, 0);
  EXPECT_TRUE(has(op.out, "list ") && has(op.out, "check [NAME]")) << op.out;
  const Ended check = duet({"op", "check", "--help"});
  EXPECT_EQ(check.code, 0);
  EXPECT_TRUE(has(check.out, "--seed") && has(check.out, "--device")) << check.out;
  EXPECT_EQ(duet({"op", "list", "--help"}).code, 0);
}

}  // namespace
}  // namespace duet::test
