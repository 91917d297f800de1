// `ld-linux-x86-64.so.2 duet ...`: the program behind an explicit loader, which is what
// /proc/self/exe then names.
#include <dlfcn.h>
#include <sys/auxv.h>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

class Loader : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    Dl_info info{};
    // The loader of this test is that of the program: both link the same C library.
    void* base = reinterpret_cast<void*>(getauxval(AT_BASE));  // NOLINT(performance-no-int-to-ptr)
    if (base == nullptr || dladdr(base, &info) == 0) GTEST_SKIP() << "no dynamic loader";
    options_.program = options_.file = fs::canonical(info.dli_fname);
  }
  // The arguments after the loader's own options and the program.
  Ended through(std::vector<std::string> arguments, const std::vector<std::string>& loader = {}) {
    arguments.insert(arguments.begin(), DUET_BINARY);
    arguments.insert(arguments.begin(), loader.begin(), loader.end());
    return duet(arguments, options_);
  }
  ProcessOptions options_;
};

TEST_F(Loader, StartsTheProgramItself) {
  for (const std::vector<std::string>& own :
       {std::vector<std::string>{}, {"--library-path", "/nowhere"}}) {
    const Ended version = through({"--version"}, own);
    EXPECT_EQ(version.code, 0) << version.err;
    EXPECT_EQ(version.out.rfind("duet ", 0), 0U) << version.out;
    const Ended words = through({"train", "--data", "no such file"}, own);
    EXPECT_EQ(words.code, 2);
    EXPECT_EQ(words.err.rfind("error: no such file: ", 0), 0U) << words.err;
  }
  EXPECT_EQ(through({}).code, 2);  // no arguments at all
}

TEST_F(Loader, RunsOfAnExperimentStartThroughItToo) {
  write("e.toml",
        "out_dir = \"lab\"\nseeds = [1]\nn_layer = 1\nn_embd = 8\nn_head = 1\nblock_size = 8\n"
        "batch_size = 2\neval_iters = 1\neval_interval = 2\nthreads = 1\nmax_iters = 2\n"
        "[[arm]]\nname = \"none\"\ncoupling = \"none\"\n");
  const Ended lab = through({"lab", "compare", "e.toml", "--data", "text.txt"});
  EXPECT_EQ(lab.code, 0) << lab.out << lab.err << read_all(directory_ / "lab/logs/none-seed1.log");
  EXPECT_NE(lab.out.find("| done |"), std::string::npos) << lab.out;
}

}  // namespace
}  // namespace duet::test
