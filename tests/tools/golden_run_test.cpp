// Run directories written by duet 0.1.0 (tests/golden/run_v1) resume, evaluate and generate: what a
// user's old run must still do after every change of the formats.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

// What the version that wrote the directory computed: instruction sets agree within 4e-7, so a
// tolerance of 2e-6 takes all of them and no change of the mathematics.
constexpr double kTolerance = 2e-6;
struct Expected {
  double eval_loss = 0.0, older_eval_loss = 0.0;  // of the last checkpoint and of the one before
  std::vector<double> train_loss;                 // of the steps after a resume
  double val_loss = 0.0;                          // at their end
};

const std::map<std::string, Expected>& expected() {
  static const std::map<std::string, Expected> values = {
      {"gpt2",
       {0.1031212786,
        0.1486799866,
        {0.1760619059, 0.1223110259, 0.1148470901, 0.1597320735},
        0.0983324109}},
      {"llama",
       {0.1461179230,
        0.1917591891,
        {0.1576785296, 0.1376953721, 0.1384064853, 0.1375678480},
        0.1458956000}}};
  return values;
}

class GoldenRun : public CommandTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    fs::copy(fs::path(DUET_SOURCE_DIR) / "tests/golden/run_v1", directory_,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  Ended on(const std::string& isa, const std::vector<std::string>& arguments) const {
    ProcessOptions options;
    options.environment = {"DUET_ISA=" + isa};
    Ended ended = duet(arguments, options);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended;
  }
  double eval_loss(const std::string& isa, const std::string& checkpoint) const {
    const Ended ended =
        on(isa, {"eval", "--checkpoint", checkpoint, "--data", "text.txt", "--json"});
    return nlohmann::json::parse(ended.out).at("loss").get<double>();
  }
  // The lines of the run's log after step 1000.
  std::vector<nlohmann::json> new_lines(const std::string& run) const {
    std::vector<nlohmann::json> out;
    std::istringstream log(read_all(directory_ / run / "metrics.jsonl"));
    for (std::string text; std::getline(log, text);) {
      auto line = nlohmann::json::parse(text);
      if (line.at("step").get<int>() > 1000) out.push_back(std::move(line));
    }
    return out;
  }
};

TEST_P(GoldenRun, EvaluatesGeneratesAndResumes) {
  const std::string run = GetParam();
  const Expected& values = expected().at(run);
  const auto before = snapshot(directory_ / run);
  for (const std::string isa : {"baseline", "best"}) {
    SCOPED_TRACE(isa);
    EXPECT_NEAR(eval_loss(isa, run), values.eval_loss, kTolerance);
    EXPECT_NEAR(eval_loss(isa, run + "/checkpoints/step_00000500"), values.older_eval_loss,
                kTolerance);
    EXPECT_EQ(on(isa, {"generate", "--checkpoint", run, "--prompt", "the red fox sees",
                       "--temperature", "0", "--max_new_tokens", "12"})
                  .out,
              "the red fox sees the blue bi\n");
  }
  EXPECT_EQ(snapshot(directory_ / run), before);  // none of them writes there

  const Ended resumed = on("best", {"train", "--resume", "--out_dir", run, "--max_iters", "1004",
                                    "--log_interval", "1"});
  EXPECT_NE(resumed.out.find("step 1000"), std::string::npos) << resumed.out;
  const auto lines = new_lines(run);
  ASSERT_EQ(lines.size(), values.train_loss.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), 1001 + i);
    EXPECT_NEAR(lines[i].at("train/loss").get<double>(), values.train_loss[i], kTolerance);
  }
  EXPECT_NEAR(lines.back().at("val/loss").get<double>(), values.val_loss, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRun, testing::Values("gpt2", "llama"),
                         [](const auto& run) { return std::string(run.param); });

}  // namespace
}  // namespace duet::test
