// duet lab as a process: two arms by two seeds, restarts, kills, refusals, and the report's numbers
// against the runs' own logs.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/runtime/same_text.h"
#include "tests/tools/process.h"
#include "train/device_choice.h"

namespace duet::test {
namespace {

class LabCommandTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    write("e.toml", experiment("12"));
  }
  static std::string experiment(const std::string& max_iters) {
    return "out_dir = \"lab\"\nseeds = [1, 2]\nn_layer = 1\nn_embd = 16\nn_head = 2\n"
           "block_size = 16\nbatch_size = 2\neval_iters = 2\neval_interval = 4\nlog_interval = 2\n"
           "schedule = \"constant\"\nwarmup_iters = 2\nthreads = 1\nmax_iters = " +
           max_iters +
           "\n[[arm]]\nname = \"none\"\ncoupling = \"none\"\n"
           "[[arm]]\nname = \"euler\"\ncoupling = \"euler\"\n";
  }
  static std::vector<std::string> compare(const std::vector<std::string>& more = {}) {
    std::vector<std::string> out = {"lab", "compare", "e.toml", "--data", "text.txt"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  double final_bpb(const std::string& run) const {
    std::istringstream in(read_all(directory_ / "lab/runs" / run / "metrics.jsonl"));
    nlohmann::json last;
    for (std::string line; std::getline(in, line);) last = nlohmann::json::parse(line);
    return last["val/bpb"];
  }
  // Files of the runs that only training writes.
  std::map<std::string, std::string> checkpoints() const {
    auto all = snapshot(directory_ / "lab/runs");
    for (auto at = all.begin(); at != all.end();) {
      at = at->first.find("/checkpoints/") == std::string::npos ? all.erase(at) : std::next(at);
    }
    return all;
  }
};

std::string formatted(const char* form, double a, double b = 0, double c = 0) {
  char text[96];
  std::snprintf(text, sizeof text, form, a, b, c);
  return text;
}

TEST_F(LabCommandTest, ComparesAndIsNotRepeated) {
  const Ended first = duet(compare({"--jobs", "2"}));
  ASSERT_EQ(first.code, 0) << first.out << first.err;
  // Where a build for CUDA finds no GPU, it says that it falls back.
  if (!kCudaBuild) {
    EXPECT_EQ(first.err, "");
  }
  EXPECT_EQ(first.err.find("error"), std::string::npos) << first.err;
  EXPECT_EQ(first.out.find('\x1b'), std::string::npos);
  EXPECT_NE(first.out.find("2 arms x 2 seeds = 4 runs in lab\n"), std::string::npos) << first.out;

  // By the test's own arithmetic; t(0.975; 1) = 12.7062047.
  const double none1 = final_bpb("none-seed1"), none2 = final_bpb("none-seed2");
  const double d1 = final_bpb("euler-seed1") - none1, d2 = final_bpb("euler-seed2") - none2;
  const double mean = (d1 + d2) / 2, half = 12.7062047 * std::abs(d1 - d2) / 2;
  const std::string report = read_all(directory_ / "lab/report.md");
  const std::string spread =
      formatted("| %.4f ± %.4f |", (none1 + none2) / 2, std::abs(none1 - none2) / std::sqrt(2.0));
  const std::string difference =
      formatted("| %+.4f [%+.4f, %+.4f] |", mean, mean - half, mean + half);
  EXPECT_NE(report.find(spread), std::string::npos) << spread << "\n" << report;
  EXPECT_NE(report.find(difference), std::string::npos) << difference << "\n" << report;
  EXPECT_NE(first.out.find(difference), std::string::npos);
  EXPECT_NE(read_all(directory_ / "lab/report.html").find("<svg "), std::string::npos);
  EXPECT_EQ(duet({"inspect", "lab/runs/euler-seed2"}).code, 0);

  const auto before = snapshot(directory_ / "lab/runs");
  const Ended again = duet(compare());
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("4 of 4 runs are done\n"), std::string::npos) << again.out;
  EXPECT_TRUE(same_files(snapshot(directory_ / "lab/runs"), before));

  fs::remove(directory_ / "lab/report.md");
  EXPECT_EQ(duet({"lab", "report", "lab"}).code, 0);
  EXPECT_NE(read_all(directory_ / "lab/report.md").find(difference), std::string::npos);

  write("e.toml", experiment("16"));
  const Ended changed = duet(compare());
  EXPECT_EQ(changed.code, 2);
  EXPECT_NE(changed.err.find("lab/runs/none-seed1: the run was begun with other settings (then -> "
                             "now):\n  max_iters 12 -> 16\n"),
            std::string::npos)
      << changed.err;
  EXPECT_TRUE(same_files(snapshot(directory_ / "lab/runs"), before));
}

// Killed or stopped at any place, then run again: the same end as without. A run takes thousands
// of steps and is interrupted when its first ones are logged, so that no machine is done before.
TEST_F(LabCommandTest, InterruptedAndRepeatedEndsTheSame) {
  write("e.toml", experiment("4000"));
  const auto numbers = [&] {
    std::vector<double> out;
    for (const char* run : {"none-seed1", "euler-seed1", "none-seed2", "euler-seed2"}) {
      out.push_back(final_bpb(run));
    }
    return out;
  };
  const auto logged = [&](const char* run) {
    return read_all(directory_ / "lab/runs" / run / "metrics.jsonl").size();
  };
  const auto command = compare({"--eval_interval", "1000"});
  ASSERT_EQ(duet(command).code, 0);
  const std::vector<double> whole = numbers();
  fs::remove_all(directory_ / "lab");
  struct Interruption {
    int signal, code;
    const char *run, *how_it_begins;
  };
  for (const Interruption& how : {Interruption{SIGKILL, 1000 + SIGKILL, "none-seed1", "starts"},
                                  Interruption{SIGINT, 130, "none-seed1", "goes on"},
                                  Interruption{SIGTERM, 143, "euler-seed1", "starts"},
                                  Interruption{SIGKILL, 1000 + SIGKILL, "none-seed2", "starts"}}) {
    SCOPED_TRACE(how.run);
    Process lab(directory_, command);
    ASSERT_TRUE(lab.wait_for(std::string(how.run) + " | " + how.how_it_begins))
        << lab.out() << lab.wait().err;
    ASSERT_TRUE(lab.wait_until([&, before = logged(how.run)] { return logged(how.run) > before; }))
        << lab.out();
    lab.signal(how.signal);
    const Ended ended = lab.wait();
    EXPECT_EQ(ended.code, how.code) << ended.out << ended.err;
    EXPECT_EQ(ended.out.find("go on      duet lab compare ") != std::string::npos,
              how.signal != SIGKILL)
        << ended.out;
  }
  const Ended last = duet(command);
  ASSERT_EQ(last.code, 0) << last.out << last.err;
  EXPECT_EQ(numbers(), whole);
}

TEST_F(LabCommandTest, OneThatFailsTakesNoOtherWithIt) {
  // The learning rate of one arm blows up.
  write("e.toml", "max_nonfinite_steps = 1\ngrad_clip = 0\nweight_decay = 1000\n" +
                      experiment("40") +
                      "[[arm]]\nname = \"wild\"\nlearning_rate = 1000\ncoupling = \"none\"\n");
  const Ended ended = duet(compare({"--eval_interval", "40"}));
  EXPECT_NE(ended.out.find("wild-seed1 | diverged with exit code 4: "), std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find(": 1 step was not finite, because "), std::string::npos) << ended.out;
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.out.find("euler-seed2 | done"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("| wild | "), std::string::npos) << ended.out;
  // It is an outcome: told as such everywhere, and not tried again.
  const std::string report = read_all(directory_ / "lab/report.md");
  for (const char* words : {"4 of 6 runs done, 2 diverged.", "| wild-seed1 | diverged at step ",
                            "Diverged, and left out: wild-seed1, wild-seed2."}) {
    EXPECT_NE(report.find(words), std::string::npos) << words << "\n" << report;
  }
  EXPECT_EQ(report.find("Not finished"), std::string::npos) << report;
  const Ended again = duet(compare({"--eval_interval", "40"}));
  EXPECT_EQ(again.code, 4);
  EXPECT_EQ(again.out.find("| starts"), std::string::npos) << again.out;
  EXPECT_EQ(again.out.find("| goes on"), std::string::npos) << again.out;
  EXPECT_NE(again.out.find("wild-seed2 | diverged before: not repeated; remove "),
            std::string::npos)
      << again.out;
}

TEST_F(LabCommandTest, RefusalsWriteNothing) {
  const auto before = snapshot(directory_);
  EXPECT_EQ(duet({"lab"}).code, 2);
  EXPECT_EQ(duet({"lab", "x"}).err,
            "error: duet lab: got \"x\", expected compare or report; see duet lab --help\n");
  EXPECT_EQ(duet({"lab", "--help"}).code, 0);
  EXPECT_EQ(duet({"lab", "compare"}).code, 2);
  EXPECT_EQ(duet({"lab", "compare", "nowhere.toml"}).code, 2);
  EXPECT_EQ(duet({"lab", "compare", "e.toml", "--data", "nowhere"}).code, 2);
  EXPECT_EQ(duet(compare({"--coupling", "none"})).code, 2);
  EXPECT_EQ(duet(compare({"--jobs", "0"})).code, 2);
  EXPECT_EQ(duet({"lab", "report", "nowhere"}).code, 2);
  EXPECT_TRUE(same_files(snapshot(directory_), before));
  ASSERT_EQ(duet(training("single", {"--max_iters", "1"})).code, 0);
  EXPECT_EQ(duet(compare({"--out_dir", "single"})).err,
            "error: single: it holds a single run, not an experiment; choose another out_dir\n");
}

TEST_F(LabCommandTest, TwoAtOnceInOnePlaceAreRefused) {
  write("e.toml", experiment("100000"));
  Process first(directory_, compare());
  ASSERT_TRUE(first.wait_for("| starts"));
  const Ended second = duet(compare());
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another run is using it (pid "), std::string::npos) << second.err;
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
}

}  // namespace
}  // namespace duet::test
