// duet op new, on a copy of the parts of the source tree that it reads.
#include <sys/resource.h>

#include <set>

#include "tests/runtime/same_text.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class OpNewTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    tree_ = directory_ / "tree";
    const fs::path source = DUET_SOURCE_DIR;
    fs::create_directories(tree_ / "tests");
    for (const char* file : {"CMakeLists.txt", ".clang-format"}) {
      fs::copy_file(source / file, tree_ / file);
    }
    for (const char* room : {"runtime", "autograd", "ops", "tests/ops"}) {
      fs::copy(source / room, tree_ / room, fs::copy_options::recursive);
    }
  }
  Ended op_new(std::vector<std::string> arguments, const ProcessOptions& options = {}) const {
    arguments.insert(arguments.begin(), {"op", "new"});
    arguments.insert(arguments.end(), {"--root", "tree"});
    return duet(arguments, options);
  }
  // Refused with a message that has all of `parts`, and nothing written.
  void refuse(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const auto before = snapshot(tree_);
    const Ended ended = op_new(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    for (const std::string& part : parts) {
      EXPECT_NE(ended.err.find(part), std::string::npos) << part << " in: " << ended.err;
    }
    EXPECT_TRUE(same_files(snapshot(tree_), before)) << arguments[0];
  }
  // Runs it; what was written, and that changed files only gained lines.
  std::vector<std::string> written(const std::vector<std::string>& arguments) {
    const auto before = snapshot(tree_);
    const Ended ended = op_new(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    std::vector<std::string> out;
    for (const auto& [path, text] : snapshot(tree_)) {
      const auto old = before.find(path);
      if (old != before.end() && old->second == text) continue;
      if (text == "(no file)") continue;
      out.push_back(path);
      EXPECT_NE(ended.out.find(path), std::string::npos) << path << " in: " << ended.out;
      if (old == before.end()) continue;
      std::istringstream now(text), then(old->second);
      std::string line, wanted;
      std::getline(then, wanted);
      while (std::getline(now, line)) {
        if (line == wanted) std::getline(then, wanted);
      }
      EXPECT_TRUE(then.eof()) << path << " lost: " << wanted;
    }
    return out;
  }

  fs::path tree_;
};

TEST_F(OpNewTest, PointwiseIsOneFileOneLineOneRow) {
  const std::vector<std::string> files{"ops/ops.h", "ops/pointwise/soft_cap.cu",
                                       "tests/ops/op_cases.h", "tests/ops/soft_cap_cases.cpp"};
  EXPECT_EQ(written({"soft_cap", "--pointwise"}), files);
  EXPECT_NE(read_all(tree_ / "ops/ops.h").find("Tensor soft_cap(const Tensor& x);"),
            std::string::npos);
  const std::string table = read_all(tree_ / "tests/ops/op_cases.h");
  EXPECT_NE(table.find("\nstd::vector<OpCase> soft_cap_cases();\n"), std::string::npos);
  EXPECT_NE(table.find("\n             soft_cap_cases,\n"), std::string::npos);
  EXPECT_NE(read_all(tree_ / files[1]).find("struct SoftCap {"), std::string::npos);
}

TEST_F(OpNewTest, SaysWhatTheOpComputes) {
  const std::string says = "c tanh(x / c), c learnable";
  const Ended said = op_new({"soft_cap", "--pointwise", "--inputs", "2", "--says", says});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out.find("what it computes"), std::string::npos) << said.out;
  EXPECT_NE(read_all(tree_ / "ops/ops.h").find("// " + says + "\nTensor soft_cap(const Tensor& a,"),
            std::string::npos);
  EXPECT_EQ(read_all(tree_ / "ops/pointwise/soft_cap.cu").rfind("// soft_cap(a, b): " + says, 0),
            0U);
  const Ended unsaid = op_new({"one", "--kernels"});
  EXPECT_NE(unsaid.out.find("what it computes, in ops/ops.h, before the first build"),
            std::string::npos)
      << unsaid.out;
  for (const std::string& bad :
       {std::string("a\nb"), std::string("ends in \\"), std::string(91, 'a')}) {
    refuse({"two", "--pointwise", "--says", bad}, {"--says: got ", "expected one line"});
  }
}

TEST_F(OpNewTest, TellsWhereToBuild) {
  const Ended above = op_new({"one", "--pointwise"});
  EXPECT_NE(above.out.find("then     cd tree && cmake --build build"), std::string::npos)
      << above.out;
  const Ended inside = Process(tree_, {"op", "new", "two", "--pointwise"}).wait();
  EXPECT_NE(inside.out.find("then     cmake --build build"), std::string::npos) << inside.out;
}

// Untouched, what was written stands up to tools/check_format.sh, however long the name is.
TEST_F(OpNewTest, WritesWhatTheFormatCheckTakes) {
  if (std::system("clang-format --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "there is no clang-format";
  }
  for (const std::string& name :
       {std::string("op"), std::string("sum_of_rows"), "coupling_" + std::string(29, 'y')}) {
    for (const std::string kind : {"--pointwise", "--kernels"}) {
      for (const std::string& file : written({name + (kind == "--kernels" ? "_k" : "_p"), kind})) {
        const std::string check = "cd '" + tree_.string() +
                                  "' && clang-format --dry-run --Werror '" + file +
                                  "' 2> ../format.txt";
        EXPECT_EQ(std::system(check.c_str()), 0) << read_all(directory_ / "format.txt");
      }
    }
  }
}

TEST_F(OpNewTest, TwoOperands) {
  EXPECT_EQ(written({"--inputs", "2", "--pointwise", "soft_cap"}).size(), 4U);
  EXPECT_NE(read_all(tree_ / "ops/ops.h").find("soft_cap(const Tensor& a, const Tensor& b);"),
            std::string::npos);
}

TEST_F(OpNewTest, KernelsAreAFolder) {
  const std::vector<std::string> files{"ops/log_sum/log_sum.cpp",
                                       "ops/log_sum/log_sum.h",
                                       "ops/log_sum/log_sum_cpu.cpp",
                                       "ops/log_sum/log_sum.cu",
                                       "ops/ops.h",
                                       "tests/ops/log_sum_cases.cpp",
                                       "tests/ops/op_cases.h"};
  const std::vector<std::string> found = written({"log_sum", "--kernels"});
  EXPECT_EQ(std::set(found.begin(), found.end()), std::set(files.begin(), files.end()));
  EXPECT_NE(read_all(tree_ / "ops/log_sum/log_sum.cpp").find("DUET_CUDA_TABLE(log_sum_cuda),"),
            std::string::npos);
}

TEST_F(OpNewTest, ASecondOneLeavesTheFirst) {
  written({"one", "--pointwise"});
  written({"two", "--kernels"});
  refuse({"one", "--kernels"}, {"the op exists", "ops/pointwise/one.cu", "nothing was written"});
  refuse({"two", "--pointwise"}, {"the op exists", "ops/two"});
  // What a user deleted by halves.
  fs::remove(tree_ / "ops/pointwise/one.cu");
  refuse({"one", "--pointwise"},
         {"there is tests/ops/one_cases.cpp", "if it is left over, delete it",
          "lines in ops/ops.h and tests/ops/op_cases.h"});
}

TEST_F(OpNewTest, FindsTheTreeAbove) {
  const Ended ended = Process(tree_ / "ops/pointwise", {"op", "new", "one", "--pointwise"}).wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(tree_ / "ops/pointwise/one.cu"));
}

TEST_F(OpNewTest, RefusesBadNames) {
  for (const char* name : {"Cube", "2x", "_x", "x_", "a__b", "a-b", "a.b", "../x", "\xC3\xA9"}) {
    refuse({name, "--pointwise"}, {"not snake_case"});
  }
  refuse({"", "--pointwise"}, {"got \"\", expected NAME"});
  refuse({"double", "--pointwise"}, {"taken by C++", "double_op"});
  for (const char* name : {"linux", "errno", "stdin", "assert"}) {
    refuse({name, "--pointwise"}, {"taken by the C library", std::string(name) + "_op"});
  }
  // A call in that file would fit both; those of numbers and duals do not meet one of tensors.
  refuse({"product", "--pointwise"},
         {"the name is taken", "declared in ops/attention/tile_gemm-inl.h"});
  for (const char* name : {"tanh", "exp2"}) written({name, "--pointwise"});
  refuse({"x", "--pointwise"}, {"too short: got \"x\""});
  refuse({std::string(41, 'a'), "--pointwise"}, {"too long: got 41"});
  refuse({"silu", "--pointwise"}, {"the op exists", "ops/pointwise/silu.cu"});
  refuse({"softmax", "--kernels"}, {"the op exists", "ops/softmax"});
  refuse({"transpose", "--pointwise"}, {"the name is taken", "ops/ops.h"});
  refuse({"grad", "--pointwise"}, {"the name is taken", "autograd/node.h"});
  refuse({"tensor", "--pointwise"}, {"the name is taken", "declared in runtime/"});
  refuse({"silu_odd", "--pointwise"}, {"a row of tests/ops/pointwise_cases.cpp"});
}

TEST_F(OpNewTest, RefusesHalfACommand) {
  refuse({"one"}, {"neither --pointwise nor --kernels"});
  refuse({"one", "--pointwise", "--kernels"}, {"both"});
  refuse({"one", "--kernels", "--inputs", "2"}, {"--inputs is for --pointwise"});
  refuse({"one", "--pointwise", "--inputs", "3"}, {"[1, 2]"});
  const Ended elsewhere = duet({"op", "new", "one", "--pointwise"});
  EXPECT_EQ(elsewhere.code, 2);
  EXPECT_NE(elsewhere.err.find("no source tree"), std::string::npos) << elsewhere.err;
  EXPECT_NE(elsewhere.err.find("--root DIR"), std::string::npos) << elsewhere.err;
}

TEST_F(OpNewTest, AllOrNothing) {
  // A place that is not as it was: found before anything is written.
  const std::string table = read_all(tree_ / "tests/ops/op_cases.h");
  std::string changed = table;
  changed.replace(changed.find("for (auto family"), 16, "for (auto  family");
  write("tree/tests/ops/op_cases.h", changed);
  refuse({"one", "--kernels"}, {"op_cases.h: no place for the new op", "for (auto family"});
  // Lines that an editor on another system left.
  const std::string list = read_all(tree_ / "ops/ops.h");
  write("tree/ops/ops.h", std::string(list).insert(list.find('\n'), "\r"));
  refuse({"one", "--kernels"}, {"ops/ops.h has CRLF line ends", "sed -i 's/\\r$//' ops/ops.h"});
  write("tree/ops/ops.h", list);
  write("tree/tests/ops/op_cases.h", table);

  // A disk that takes the small new files and refuses ops.h: all is taken back.
  const auto before = snapshot(tree_);
  ProcessOptions limited;
  limited.child = [] {
    const rlimit limit{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Ended ended = op_new({"one", "--kernels"}, limited);
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("ops/ops.h"), std::string::npos) << ended.err;
  EXPECT_TRUE(same_files(snapshot(tree_), before));
}

}  // namespace
}  // namespace duet::test
