// Experiments: files and their faults, what is planned, what a restart refuses, and that the arms
// of a seed start alike and read the same batches.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/error.h"
#include "tests/runtime/errors.h"
#include "tests/train/train_support.h"
#include "train/lab/experiment.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

constexpr const char* kTiny = R"(
seeds = [1, 2]
n_layer = 1
n_embd = 16
n_head = 2
block_size = 8
batch_size = 2
max_iters = 3
eval_iters = 2

[[arm]]
name = "none"
coupling = "none"
[[arm]]
name = "euler"
coupling = "euler"
)";

class LabExperimentTest : public testing::Test {
 protected:
  Experiment plan(const std::string& text, std::vector<Setting> flags = {}) const {
    write_bytes(dir_.file("e.toml"), text);
    flags.insert(flags.begin(),
                 {flag("data", dir_.file("text")), flag("out_dir", dir_.file("lab"))});
    return plan_experiment(dir_.file("e.toml"), flags);
  }
  static Setting flag(const std::string& key, const std::string& value) {
    return {key, FlagText{value}, "--" + key};
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  }
  std::string refusal(const std::string& text, const std::vector<Setting>& flags = {}) const {
    try {
      plan(text, flags);
    } catch (const Error& error) {
      return error.what();
    }
    return "(accepted)";
  }
  void run(const Experiment& experiment, std::size_t index) const {
    const ExperimentRun& planned = experiment.runs[index];
    ResolvedConfig config = resolve_config({"", parse_config(planned.config, "run"), false});
    config.run.model.vocab_size = planned.resolved.model.vocab_size;
    TrainContext context;
    context.run_files = {{"config.toml", config_toml(config)}};
    train(config.run, context);
  }

  TempDirectory dir_;
  RunConfig text_ = tiny_run(dir_);  // writes the text
};

TEST_F(LabExperimentTest, PlansSeedBySeed) {
  const Experiment e = plan(kTiny, {flag("learning_rate", "0.5")});
  ASSERT_EQ(e.runs.size(), 4U);
  const std::vector<std::string> names = {"none-seed1", "euler-seed1", "none-seed2", "euler-seed2"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(e.runs[i].name, names[i]);
    EXPECT_EQ(e.runs[i].directory, dir_.file("lab/runs/") + names[i]);
    EXPECT_EQ(e.runs[i].resolved.seed, i / 2 + 1);
    EXPECT_EQ(e.runs[i].resolved.learning_rate, 0.5);
    EXPECT_EQ(e.runs[i].resolved.model.coupling,
              i % 2 == 0 ? CouplingKind::none : CouplingKind::euler);
    // The written file gives the same run.
    const RunConfig back = resolve_config({"", parse_config(e.runs[i].config, "x"), false}).run;
    for (const ConfigKey& key : config_keys()) {
      if (key.name == "vocab_size") continue;  // the tokenizer's, filled in
      EXPECT_EQ(toml_value(key, back), toml_value(key, e.runs[i].resolved)) << key.name;
    }
  }
  // f: 2 heads x (8 -> 8 -> 8), and a step size per head
  EXPECT_EQ(e.record.arms[1].parameters - e.record.arms[0].parameters, 2 * (2 * 8 * 8 + 1));
  EXPECT_EQ(e.record.arms[1].changes, "coupling = \"euler\"\n");
  EXPECT_EQ(e.record.files.size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(dir_.file("lab")));
}

TEST_F(LabExperimentTest, TheRecordReadsBack) {
  Experiment e = plan(kTiny);
  e.record.command_line = {"duet", "lab", "compare", "e.toml"};
  std::filesystem::create_directories(dir_.file("lab"));
  write_record(e.record);
  const ExperimentRecord back = read_record(dir_.file("lab"));
  EXPECT_EQ(back.command_line, e.record.command_line);
  EXPECT_EQ(back.seeds, e.record.seeds);
  EXPECT_EQ(back.common, e.record.common);
  ASSERT_EQ(back.arms.size(), 2U);
  EXPECT_EQ(back.arms[1].name, "euler");
  EXPECT_EQ(back.arms[1].parameters, e.record.arms[1].parameters);
  EXPECT_EQ(back.arms[1].max_iters, 3);
  EXPECT_EQ(back.files[0].hash, e.record.files[0].hash);
  for (const char* path : {"../../mine", "..", ".hidden", "a/b", ""}) {
    e.record.arms[1].name = path;  // of a directory, and of files
    write_record(e.record);
    expect_in("key arms.name: expected a file name",
              error_of(ErrorKind::file, [&] { read_record(dir_.file("lab")); }));
  }
  write_bytes(dir_.file("lab/experiment.json"), "{\"format\": \"duet-experiment\"}");
  EXPECT_THROW(read_record(dir_.file("lab")), Error);
  EXPECT_THROW(read_record(dir_.file("nowhere")), Error);
}

TEST_F(LabExperimentTest, FaultsAreNamed) {
  const std::string file = dir_.file("e.toml");
  const auto begins = [](const std::string& text, const std::string& with) {
    EXPECT_EQ(text.substr(0, with.size()), with) << text;
  };
  begins(refusal(replaced(kTiny, "seeds = [1, 2]", "")),
         file + ": seeds: expected a list of integers");
  begins(refusal(replaced(kTiny, "[1, 2]", "[]")), file + ": seeds: expected");
  begins(refusal(replaced(kTiny, "[1, 2]", "[1, 1]")), file + ": seeds: got 1, expected different");
  begins(refusal(replaced(kTiny, "[1, 2]", "[-1]")), file + ": seeds: got -1");
  begins(refusal("seeds = [1]\n"), file + ": no arms; write [[arm]]");
  begins(refusal("seeds = [1]\narm = 3\n"), file + ": no arms; write [[arm]]");
  begins(refusal("seeds = [1]\n[arm]\nname = \"a\"\n"), file + ": no arms; write [[arm]]");
  begins(refusal("seeds = [1]\n[[arm]]\nn_layer = 2\n"), file + ":2:1: [[arm]]: name is missing");
  begins(refusal("seeds = [1]\n[[arm]]\nname = \"../a\"\n"), file + ":3:8: name: got \"../a\"");
  begins(refusal("seeds = [1]\n[[arm]]\nname = \"a\"\n[[arm]]\nname = \"a\"\n"),
         file + ":4:1: [[arm]]: two arms have the name \"a\"");
  begins(refusal("seeds = [1]\nseed = 4\n[[arm]]\nname = \"a\"\n"), file + ":2:1: seed: not a key");
  begins(refusal("seeds = [1]\n[[arm]]\nname = \"a\"\nseed = 4\n"), file + ":4:1: seed: not a key");
  begins(refusal("seeds = [1]\n[[arm]]\nname = \"a\"\nout_dir = \"x\"\n"), file + ":4:1: out_dir:");
  begins(refusal("seeds = [1]\n[[arm]]\nname = \"a\"\nn_layers = 4\n"),
         file + ":4:1: n_layers: no key has this name; did you mean n_layer?");
  begins(refusal("seeds = [1]\n[[arm]]\nname = \"a\"\nn_layer = -4\n"),
         file + ":4:1: n_layer: got");
  begins(refusal("seeds = [1]\n[[arm]\n"), file + ":2:");
  begins(refusal(replaced(kTiny, "coupling = \"euler\"", "n_embd = 7")), "arm euler: ");
  begins(refusal(kTiny, {flag("coupling", "none")}), "--coupling: the arm none of ");
  begins(refusal(kTiny, {flag("seed", "3")}), "--seed: the experiment has its own seeds");
  begins(refusal(kTiny, {flag("data", dir_.file("nowhere"))}), dir_.file("nowhere"));
}

TEST_F(LabExperimentTest, KeysThatUnpairAreTold) {
  EXPECT_TRUE(plan(kTiny).record.unpaired_keys.empty());
  EXPECT_EQ(plan(replaced(kTiny, "coupling = \"euler\"", "batch_size = 4")).record.unpaired_keys,
            std::vector<std::string>{"batch_size"});
}

TEST_F(LabExperimentTest, ChangedExperimentsAreRefusedByName) {
  const auto refused = [](const Experiment& e) -> std::string {
    try {
      check_existing(e);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Experiment e = plan(kTiny);
  EXPECT_EQ(refused(e), "");
  std::filesystem::create_directories(dir_.file("lab"));
  write_record(e.record);
  run(e, 1);
  EXPECT_EQ(refused(e), "");
  EXPECT_EQ(refused(plan(kTiny, {flag("threads", "2"), flag("keep", "9")})), "");
  const std::string more = std::string(kTiny) + "[[arm]]\nname = \"two\"\nn_layer = 2\n";
  EXPECT_EQ(refused(plan(replaced(more, "[1, 2]", "[1, 2, 3]"))), "");

  EXPECT_EQ(refused(plan(replaced(kTiny, "max_iters = 3", "max_iters = 4\nlearning_rate = 0.5"))),
            dir_.file("lab/runs/euler-seed1") +
                ": the run was begun with other settings (then -> now):\n  max_iters 3 -> 4\n  "
                "learning_rate 0.001 -> 0.5\nput them back, remove that run, or choose another "
                "out_dir");
  std::ofstream(dir_.file("text"), std::ios::app) << "x";
  const std::string changed = refused(plan(kTiny));
  EXPECT_NE(changed.find(" is not the file that the experiment began with: got 1001 bytes"),
            std::string::npos)
      << changed;
}

TEST_F(LabExperimentTest, ArmsOfASeedStartAlikeAndReadTheSameBatches) {
  // At a rate of 0 the weights stay those of the start.
  const Experiment start = plan(kTiny, {flag("learning_rate", "0")});
  std::vector<std::map<std::string, std::string>> weights;
  for (std::size_t i = 0; i < start.runs.size(); ++i) {
    run(start, i);
    const std::string last = start.runs[i].directory + "/checkpoints/step_00000003";
    const auto model = SafetensorsFile::open(last + "/model.safetensors");
    auto all = checkpoint_tensors(last);
    std::erase_if(all, [&](const auto& entry) {
      const auto names = model.names();
      return std::find(names.begin(), names.end(), entry.first) == names.end();
    });
    weights.push_back(std::move(all));
  }
  std::size_t shared = 0, differ = 0;
  for (const auto& [name, bytes] : weights[0]) {  // none, seed 1
    ASSERT_EQ(weights[1].count(name), 1U) << name;
    EXPECT_TRUE(weights[1].at(name) == bytes) << name;  // euler, seed 1
    differ += weights[2].at(name) != bytes ? 1U : 0U;   // none, seed 2
    ++shared;
  }
  EXPECT_GE(shared, 9U);
  EXPECT_GT(differ, 5U);  // norms are the same for every seed
  EXPECT_GT(weights[1].size(), shared);

  // A step size of 0 leaves the arms equal, step by step, only if they read the same batches.
  const std::string idle = replaced(kTiny, "coupling = \"euler\"",
                                    "coupling = \"euler\"\ncoupling_dt = 0.0\n"
                                    "coupling_dt_mode = \"fixed\"");
  std::vector<std::vector<double>> losses;
  const Experiment e = plan(idle, {flag("out_dir", dir_.file("idle"))});
  for (std::size_t i = 0; i < 3; ++i) {
    Recorder recorder;
    TrainContext context;
    context.reporter = &recorder;
    train(e.runs[i].resolved, context);
    losses.emplace_back();
    for (const StepReport& step : recorder.steps) losses.back().push_back(step.loss);
  }
  EXPECT_EQ(losses[0].size(), 3U);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
}

}  // namespace
}  // namespace duet::test
