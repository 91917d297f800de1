// Console and metrics.jsonl: exact lines, averages without the first steps, one line per step.
#include "train/console.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/error.h"
#include "runtime/printable.h"
#include "train/hints.h"
#include "train/metrics.h"
#include "train/text.h"

namespace duet::test {
namespace {

namespace fs = std::filesystem;

// A console whose output goes into a pipe and whose clock is set by hand.
struct TestConsole {
  ResolvedConfig config = resolve_config({});
  int ends[2];
  double now = 100;
  int columns = 200;
  std::unique_ptr<Console> console;

  explicit TestConsole(bool live = false) {
    EXPECT_EQ(pipe(ends), 0);
    config.run.log_interval = 10;
    ConsoleOptions options;
    options.fd = options.error_fd = ends[1];
    options.live = live;
    options.clock = [this] { return now; };
    options.columns = [this] { return columns; };
    console = std::make_unique<Console>(options, config, "chosen");
  }
  ~TestConsole() {
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
  }
  std::string text() {
    close(ends[1]);
    ends[1] = -1;
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
      out.append(buffer, static_cast<std::size_t>(n));
    }
    return out;
  }
  void step(std::int64_t step, double seconds) {
    now += seconds;
    StepReport report;
    report.step = step;
    report.max_iters = 2000;
    report.tokens = step * 768;
    report.loss = 1.94321;
    report.grad_norm = 0.8712;
    report.lr = 9.8e-4;
    report.seconds = seconds;
    report.flops = 5.39e9;
    report.step_tokens = 768;
    report.memory_bytes = 213U << 20;
    console->on_step(report);
  }
};

TEST(Console, StepLinesAreThoseOfTheContract) {
  TestConsole t;
  for (int i = 1; i <= 3; ++i) t.step(i, 5.0);  // slow first steps stay out of averages
  for (int i = 4; i <= 20; ++i) t.step(i, 0.0481);
  const std::string text = t.text();
  EXPECT_NE(text.find("step 20/2000 | loss 1.9432 | norm 0.87 | lr 9.8e-04 | 48.1 ms | 16.0k tok/s "
                      "| 112 GFLOP/s | mem 213 MiB | eta 1m35s\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("step 10/2000 | loss 1.9432 | norm 0.87 | lr 9.8e-04 | 48.1 ms"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("step 1/2000 |"), std::string::npos);
  EXPECT_NE(text.find("| eta ?\n"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

// Ctrl-Z and fg: the hour in between belongs to no step.
TEST(Console, AnHourOfSuspensionIsLeftOutOfTheAverages) {
  TestConsole t;
  for (int i = 1; i <= 14; ++i) t.step(i, 0.0481);
  t.step(15, 3600);
  for (int i = 16; i <= 20; ++i) t.step(i, 0.0481);
  const std::string text = t.text();
  EXPECT_NE(text.find("step 20/2000 | loss 1.9432 | norm 0.87 | lr 9.8e-04 | 48.1 ms | 16.0k tok/s "
                      "| 112 GFLOP/s | mem 213 MiB | eta 1m35s\n"),
            std::string::npos)
      << text;
}

// An evaluation is as long as it is: it belongs to the time that remains.
TEST(Console, LongEvaluationsCountInTheTimeThatRemains) {
  TestConsole t;
  for (int i = 1; i <= 10; ++i) t.step(i, 0.01);
  for (int i = 11; i <= 13; ++i) {
    t.console->on_eval_start(i - 1);
    t.now += 10;
    t.console->on_eval({i - 1, 1, 1.9, 6.69, 2.74, false, {}, {}, {}});
    t.step(i, 0.01);
  }
  for (int i = 14; i <= 20; ++i) t.step(i, 0.01);
  // 17 timed steps in 30.17 seconds, 1980 to go.
  const std::string text = t.text();
  EXPECT_NE(text.find("| eta 58m34s\n"), std::string::npos) << text;
}

TEST(Console, EvalLineIsThatOfTheContract) {
  TestConsole t;
  t.console->on_eval({250, 1, 1.88471, 6.584, 2.7191, true, {}, {}, {}});
  t.console->on_eval({500, 1, 1.9, 6.69, 2.74, false, {}, {}, {}});
  EXPECT_EQ(t.text(),
            "step 250 | val loss 1.8847 | ppl 6.58 | bpb 2.719 | best\n"
            "step 500 | val loss 1.9000 | ppl 6.69 | bpb 2.740\n");
}

TEST(Console, AnEvaluationBeforeTheFirstStepIsAnnounced) {
  TestConsole t;
  t.console->on_eval_start(0);
  t.step(1, 0.1);
  t.console->on_eval_start(250);
  EXPECT_EQ(t.text().rfind("step 0 | evaluating\n", 0), 0U);
  TestConsole live(/*live=*/true);
  live.console->on_eval_start(0);
  live.console->on_eval({0, 0, 1.9, 6.69, 2.74, false, {}, {}, {}});
  EXPECT_EQ(
      live.text(),
      "\r\x1b[2Kstep 0 | evaluating\r\x1b[2Kstep 0 | val loss 1.9000 | ppl 6.69 | bpb 2.740\n");
}

TEST(Console, LiveLineIsRedrawnAndFitsTheTerminal) {
  TestConsole t(/*live=*/true);
  t.columns = 60;
  for (int i = 1; i <= 20; ++i) t.step(i, 0.05);
  t.console->on_notice("hello");
  const std::string text = t.text();
  EXPECT_NE(text.find("\r\x1b[2Kstep 19/2000 | loss 1.9432 | norm 0.87"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\r\x1b[2Knote: hello\n"), std::string::npos) << text;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, '\r');) EXPECT_LT(part.size(), 60U + 4U) << part;
}

TEST(Console, AReaderThatLeftDoesNotStopTheRun) {
  TestConsole t;
  const auto before = signal(SIGPIPE, SIG_IGN);
  close(t.ends[0]);
  for (int i = 1; i <= 10; ++i) t.step(i, 0.05);
  signal(SIGPIPE, before);
}

TEST(Console, TheEndIsNamedByItsSignal) {
  TestConsole t;
  TrainResult result;
  result.signal = SIGTERM;
  result.step = 7;
  t.console->finish(result);
  result.signal = SIGINT;
  t.console->finish(result);
  const std::string text = t.text();
  EXPECT_NE(text.find("stopped by SIGTERM after step 7"), std::string::npos) << text;
  EXPECT_NE(text.find("stopped by SIGINT after step 7"), std::string::npos) << text;
}

TEST(Console, ARunWithoutAStepAdvisesNothingThatCouldNotWork) {
  TestConsole t;
  TrainResult result;
  t.console->finish(result);
  result.signal = SIGTERM;
  t.console->finish(result);
  EXPECT_EQ(
      t.text(),
      "done: 0 steps, 0 tokens, 0s\n  nothing is kept: no step was taken\n"
      "stopped by SIGTERM after step 0, 0 tokens, 0s\n  nothing is kept: no step was taken\n");
}

TEST(Console, NothingFromAFileOrANameReachesTheTerminalAsAControl) {
  TestConsole t(/*live=*/true);
  t.console->on_notice("tokenizer \x1b]0;title\x07");
  t.console->on_checkpoint(3, "a\u202eb");
  const std::string text = t.text();
  EXPECT_EQ(text, "note: tokenizer \\x1b]0;title\\x07\nstep 3 | saved a\\xe2\\x80\\xaeb\n");
}

// Every row ends at the same border, however long the paths and in whatever script.
TEST(Console, TheBoxHoldsLongPaths) {
  for (const std::string& part :
       {std::string("directory/"), std::string("\xC3\xA4\xE2\x82\xAC/")}) {
    std::string path = "/home/me/";
    while (path.size() < 300) path += part;
    ResolvedConfig config = resolve_config({"", {{"data", FlagText{path + "book.txt"}, "--data"}}});
    config.run.val_data = config.run.out_dir = path + "val.txt";
    StartReport start;
    start.model = config.run.model;
    start.device = "cpu";
    start.train_tokens = 123'456'789;
    start.val_tokens = 12'345'678;
    start.resumed_from = path + "step_00000200";
    const auto lines = start_box(config, start, "chosen");
    const auto characters = [](const std::string& line) {
      return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    };
    std::string all;
    for (const std::string& line : lines) {
      all += line + "\n";
      EXPECT_EQ(characters(line), characters(lines.front())) << line;
    }
    for (const char* words :
         {"/home/me/", "...", "book.txt: 123,456,789 tokens", "step_00000200"}) {
      EXPECT_NE(all.find(words), std::string::npos) << words << "\n" << all;
    }
  }
}

TEST(Console, HintsNameLikelyMistakes) {
  ResolvedConfig config = resolve_config({"",
                                          {{"learning_rate", FlagText{"0.5"}, "--learning_rate"},
                                           {"coupling", FlagText{"none"}, "--coupling"},
                                           {"coupling_dt", FlagText{"0.2"}, "--coupling_dt"}}});
  StartReport start;
  start.model = config.run.model;
  start.model.vocab_size = 50304;
  start.model.valid_vocab = 256;
  start.train_tokens = 50;
  start.val_tokens = 60;
  start.tokens_per_step = 768;
  std::string all;
  for (const std::string& hint : hints(config, start)) all += hint + "\n";
  EXPECT_EQ(all,
            "block_size 64 is longer than the training text (50 tokens)\n"
            "the validation text is 60 tokens, 0.9 windows of 64: its loss will be noisy; use a "
            "longer text or name val_data\n"
            "the run reads the text 30720 times: expect the validation loss to rise again; use "
            "more text, fewer steps or dropout\n"
            "learning_rate 0.5 is high for AdamW; usual is 1e-4 to 3e-3\n"
            "coupling_dt has no effect with coupling none\n"
            "vocab_size 50,304 is far more than the tokenizer's 256: 50,048 rows of the embedding "
            "(3,203,072 parameters) are padding\n");
  config = resolve_config({"",
                           {{"coupling", FlagText{"affine"}, "--coupling"},
                            {"coupling_hidden", FlagText{"4"}, "--coupling_hidden"},
                            {"coupling_dt", FlagText{"0.2"}, "--coupling_dt"}}});
  start.model = config.run.model;
  start.train_tokens = 1'000'000'000;
  start.val_tokens = 100'000;
  ASSERT_EQ(hints(config, start).size(), 1U);
  EXPECT_EQ(hints(config, start)[0],
            "coupling_dt has no effect with coupling affine, which has no step size");
  ResolvedConfig plain = resolve_config({});
  start.model = plain.run.model;
  start.model.vocab_size = 256;
  start.train_tokens = 1'000'000;
  start.val_tokens = 100'000;
  EXPECT_TRUE(hints(plain, start).empty());
}

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        (fs::temp_directory_path() / concat("duet_metrics_", static_cast<long>(getpid()))).string();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string content() const {
    std::ifstream in(directory_ + "/metrics.jsonl");
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // The steps of the lines, and whether each has training and validation values.
  std::string outline() const {
    std::istringstream in(content());
    std::string out;
    for (std::string line; std::getline(in, line);) {
      const std::size_t end = line.find(',');
      out += line.substr(8, end - 8);
      if (line.find("train/loss") != std::string::npos) out += "t";
      if (line.find("val/loss") != std::string::npos) out += "v";
      out += " ";
    }
    return out;
  }
  static void step(Reporter& metrics, std::int64_t n) {
    StepReport report;
    report.step = n;
    report.max_iters = 100;
    report.loss = 1.0 / static_cast<double>(n);
    report.seconds = 0.5;
    report.step_tokens = 64;
    metrics.on_step(report);
  }
  static void eval(Reporter& metrics, std::int64_t n) {
    metrics.on_eval({n, n, 2, 7.4, 2.9, false, {{0.1, 0.2}}, {}, {}});
  }

  std::string directory_;
  Reporter silent_;
};

TEST_F(MetricsTest, AStepHasOneLine) {
  {
    Metrics metrics(directory_, 5, silent_);
    metrics.on_start({});
    eval(metrics, 0);
    for (int i = 1; i <= 12; ++i) {
      step(metrics, i);
      if (i == 10) eval(metrics, i);
    }
  }
  EXPECT_EQ(outline(), "0v 1t 5t 10tv ");
  EXPECT_NE(content().find("\"train/loss\":0.1,"), std::string::npos);
  EXPECT_NE(content().find("\"train/tok_per_sec\":128.0"), std::string::npos);
  EXPECT_NE(content().find("\"coupling/dt\":[[0.1,0.2]]"), std::string::npos);
}

TEST_F(MetricsTest, AResumedRunDropsLaterStepsAndTornLines) {
  {
    Metrics metrics(directory_, 5, silent_);
    metrics.on_start({});
    for (int i = 1; i <= 15; ++i) step(metrics, i);
  }
  std::ofstream(directory_ + "/metrics.jsonl", std::ios::app) << "{\"step\":20,\"tok";
  {
    Metrics metrics(directory_, 5, silent_);
    StartReport start;
    start.step = 10;
    start.resumed_from = "x";
    metrics.on_start(start);
    EXPECT_EQ(outline(), "1t 5t 10t ");
    eval(metrics, 10);  // owed by the run that was stopped
    for (int i = 11; i <= 16; ++i) step(metrics, i);
  }
  EXPECT_EQ(outline(), "1t 5t 10tv 15t ");
  Metrics fresh(directory_, 5, silent_);
  fresh.on_start({});
  EXPECT_EQ(outline(), "");
}

TEST_F(MetricsTest, AnEvaluationBeforeTheFirstStepAloneIsNoRun) {
  {
    Metrics metrics(directory_, 5, silent_);
    metrics.on_start({});
    eval(metrics, 0);
  }
  EXPECT_FALSE(fs::exists(directory_ + "/metrics.jsonl"));
}

TEST_F(MetricsTest, ADirectoryThatIsGoneIsToldOnce) {
  struct Count final : Reporter {
    void on_notice(const std::string&) override { ++notices; }
    int notices = 0;
  } count;
  Metrics metrics(directory_ + "/gone", 1, count);
  metrics.on_start({});
  for (int i = 1; i <= 5; ++i) step(metrics, i);
  EXPECT_EQ(count.notices, 1);
}

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(format_count(4261888), "4,261,888");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(4000, "step"), "4000 steps");
  EXPECT_EQ(format_apart(3 << 20, 5 << 20), (std::array<std::string, 2>{"3.00 MiB", "5.00 MiB"}));
  EXPECT_EQ(format_apart(3 << 20, 3 << 20), (std::array<std::string, 2>{"3.00 MiB", "3.00 MiB"}));
  EXPECT_EQ(
      format_apart((3 << 20) + 1, 3 << 20),
      (std::array<std::string, 2>{"3.00 MiB (3,145,729 bytes)", "3.00 MiB (3,145,728 bytes)"}));
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_short(16000), "16.0k");
  EXPECT_EQ(format_short(999960), "1.0M");
  EXPECT_EQ(format_short(12), "12");
  EXPECT_EQ(format_duration(91), "1m31s");
  EXPECT_EQ(format_duration(3.6), "4s");
  EXPECT_EQ(format_duration(90061), "1d01h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_bytes(213U << 20), "213 MiB");
  EXPECT_EQ(format_bytes(3ULL << 30), "3.00 GiB");
  EXPECT_EQ(format_number(1e-8), "1e-08");
  EXPECT_EQ(format_number(1), "1.0");
}

}  // namespace
}  // namespace duet::test
