// Task mqar on the command line: train, eval, inspect, and what has no meaning without text.
#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

using MqarCommandTest = CommandTest;

TEST_F(MqarCommandTest, TrainsEvaluatesAndRefusesText) {
  const std::vector<std::string> command = {
      "train", "--task",          "mqar", "--vocab_size", "256", "--block_size",
      "16",    "--mqar_pairs",    "2",    "--n_layer",    "2",   "--n_embd",
      "16",    "--n_head",        "2",    "--batch_size", "4",   "--max_iters",
      "6",     "--eval_interval", "3",    "--eval_iters", "0",   "--out_dir",
      "run"};
  const Ended run = duet(command);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("mqar: 2 pairs in 16 tokens, always fresh training examples"),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find(" | accuracy 0."), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("duet generate"), std::string::npos) << run.out;
  std::istringstream lines(read_all(directory_ / "run/metrics.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) last = nlohmann::json::parse(line);
  EXPECT_TRUE(last.contains("val/accuracy"));
  EXPECT_FALSE(last.contains("val/bpb"));

  const Ended eval = duet({"eval", "--checkpoint", "run", "--json", "--batch_size", "4"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  const auto result = nlohmann::json::parse(eval.out);
  EXPECT_EQ(result["accuracy"], last["val/accuracy"]);
  EXPECT_EQ(result["loss"], last["val/loss"]);
  EXPECT_EQ(result["labels"], 6000);
  EXPECT_NE(duet({"eval", "--checkpoint", "run"}).out.find("accuracy       0."), std::string::npos);
  EXPECT_EQ(duet({"eval", "--checkpoint", "run", "--data", "text.txt"}).code, 2);
  EXPECT_NE(duet({"inspect", "run"}).out.find("data       none: the task makes its own examples\n"),
            std::string::npos);
  // The sizes fit, the ids do not mean the same.
  const Ended text = duet(training("text", {"--init_from", "run"}));
  EXPECT_NE(text.err.find("was trained with the tokenizer mqar"), std::string::npos) << text.err;
  EXPECT_EQ(duet({"inspect", "run/tokenizer.json"}).code, 0);
  const Ended generate = duet({"generate", "--checkpoint", "run", "--prompt", "a"});
  EXPECT_EQ(generate.code, 2);
  EXPECT_NE(generate.err.find("error: task mqar: its ids are keys and values, not text"),
            std::string::npos)
      << generate.err;
  EXPECT_EQ(duet({"train", "--resume", "--out_dir", "run", "--mqar_pairs", "3"}).code, 2);
  EXPECT_EQ(duet({"train", "--resume", "--out_dir", "run", "--max_iters", "8"}).code, 0);
  EXPECT_EQ(duet({"train", "--task", "mqar", "--data", "text.txt"}).code, 2);
}

// The defaults of the task are a recipe: most seeds know the recall after 400 to 1,500
// steps.
TEST_F(MqarCommandTest, TheBareCommandLearns) {
  const Ended run =
      duet({"train", "--task", "mqar", "--seed", "2", "--max_iters", "800", "--warmup_iters", "100",
            "--eval_interval", "800", "--diagnostics", "0", "--threads", "1", "--out_dir", "run"});
  ASSERT_EQ(run.code, 0) << run.err;
  const Ended eval = duet({"eval", "--checkpoint", "run", "--json"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  // 0.64 is what the places of keys and repeats give away without a look at the keys.
  EXPECT_GT(nlohmann::json::parse(eval.out)["accuracy"].get<double>(), 0.9) << eval.out;
}

}  // namespace
}  // namespace duet::test
