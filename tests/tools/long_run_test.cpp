// Signals and a lost standard output, met by the commands that work for long.
#include <sys/stat.h>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

constexpr const char* kExperiment =
    "out_dir = \"lab\"\nseeds = [1, 2]\nn_layer = 1\nn_embd = 16\nn_head = 2\nblock_size = 16\n"
    "batch_size = 2\neval_iters = 2\neval_interval = 4\nwarmup_iters = 2\nthreads = 1\n"
    "max_iters = 4\n[[arm]]\nname = \"none\"\ncoupling = \"none\"\n[[arm]]\nname = \"euler\"\n";

class LongRunTest : public CommandTest {
 protected:
  // A reader of standard output that has left.
  static ProcessOptions gone_reader() {
    return {{},
            [] {
              int ends[2];
              if (pipe(ends) != 0) _exit(97);
              dup2(ends[1], 1);
              close(ends[0]);
              close(ends[1]);
            },
            {}};
  }
};

TEST_F(LongRunTest, SignalsOfBatchSystemsSaveAndSayWhich) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR}) {
    const std::string out = "run" + std::to_string(signal);
    Process run(directory_, training(out, {"--max_iters", "100000", "--save_interval", "100000",
                                           "--eval_interval", "100000"}));
    ASSERT_TRUE(run.wait_for("step 5/"));
    run.signal(signal);
    const Ended ended = run.wait();
    EXPECT_EQ(ended.code, 128 + signal) << ended.err;
    EXPECT_NE(ended.out.find(std::string("stopped by SIG") + sigabbrev_np(signal)),
              std::string::npos)
        << ended.out;
    EXPECT_EQ(duet({"inspect", out}).code, 0);
  }
}

TEST_F(LongRunTest, AnAlarmIsIgnoredAndQuitQuits) {
  Process run(directory_, training("run", {"--max_iters", "100000", "--save_interval", "100000",
                                           "--eval_interval", "100000"}));
  ASSERT_TRUE(run.wait_for("step 5/"));
  for (const int signal : {SIGALRM, SIGHUP, SIGPIPE}) run.signal(signal);
  ASSERT_TRUE(run.wait_for("step 50/"));
  run.signal(SIGQUIT);
  EXPECT_EQ(run.wait().code, 128 + SIGQUIT);
  EXPECT_NE(duet({"inspect", "run"}).code, 0);  // nothing was saved
}

// `duet lab compare e.toml | head -1`
TEST_F(LongRunTest, ALostReaderEndsNoExperiment) {
  write(
      "e.toml",
      "out_dir = \"lab\"\nseeds = [1, 2]\nn_layer = 1\nn_embd = 16\nn_head = 2\nblock_size = 16\n"
      "batch_size = 2\neval_iters = 2\neval_interval = 4\nwarmup_iters = 2\nthreads = 1\n"
      "max_iters = 4\n[[arm]]\nname = \"none\"\ncoupling = \"none\"\n[[arm]]\nname = \"euler\"\n");
  const Ended ended = duet({"lab", "compare", "e.toml", "--data", "text.txt"}, gone_reader());
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("note: standard output: cannot write: "), std::string::npos);
  for (const char* run : {"none-seed1", "none-seed2", "euler-seed1", "euler-seed2"}) {
    EXPECT_TRUE(fs::exists(directory_ / "lab/runs" / run / "checkpoints/step_00000004")) << run;
  }
  EXPECT_TRUE(fs::exists(directory_ / "lab/report.html"));
}

// What is said after each run cannot be written: the runs go on, and the end says so.
TEST_F(LongRunTest, AReportThatCannotBeWrittenEndsNoExperiment) {
  write("e.toml", kExperiment);
  const std::vector<std::string> compare = {"lab", "compare", "e.toml", "--data", "text.txt"};
  ASSERT_EQ(duet(compare).code, 0);
  fs::remove_all(directory_ / "lab/runs");
  fs::remove(directory_ / "lab/report.md");
  fs::create_directories(directory_ / "lab/report.md/in_the_way");
  const Ended ended = duet(compare);
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("note: the reports cannot be written now: "), std::string::npos);
  EXPECT_NE(ended.err.find("error: lab/report.md"), std::string::npos) << ended.err;
  for (const char* run : {"none-seed1", "none-seed2", "euler-seed1", "euler-seed2"}) {
    EXPECT_TRUE(fs::exists(directory_ / "lab/runs" / run / "checkpoints/step_00000004")) << run;
  }
}

TEST_F(LongRunTest, ALostReaderKeepsNoFileFromBeingWritten) {
  const std::vector<std::string> small = {"--preset", "tiny", "--batch_size", "1"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), small.begin(), small.end());
    return duet(words, gone_reader());
  };
  EXPECT_EQ(with({"profile", "--steps", "1", "--warmup", "0", "--json", "p.json", "--html",
                  "p.html", "--trace", "p.trace"})
                .code,
            0);
  EXPECT_EQ(with({"bench", "train", "--steps", "1", "--warmup", "0", "--json", "b.json"}).code, 0);
  for (const char* file : {"p.json", "p.html", "p.trace", "b.json"}) {
    EXPECT_TRUE(fs::exists(directory_ / file)) << file;
  }
  // The exit code is the answer, read or not.
  EXPECT_EQ(with({"profile", "--fit", "64KiB"}).code, 3);
}

}  // namespace
}  // namespace duet::test
