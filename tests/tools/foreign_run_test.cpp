// Commands on runs and files that others may have written: a plain error, or the good checkpoints.
#include <nlohmann/json.hpp>

#include "runtime/hash.h"
#include "tests/tools/process.h"
#include "train/manifest.h"

namespace duet::test {
namespace {

using ForeignRun = CommandTest;

constexpr const char* kPlanted = "step_00000030-2";  // newer than the run's own of that step

// A checkpoint with this state.json, and with this manifest.json or one that is right.
void plant(const fs::path& run, const std::string& state, const std::string& text) {
  const fs::path from = run / "checkpoints/step_00000030", to = run / "checkpoints" / kPlanted;
  fs::copy(from, to);
  std::ofstream(to / "state.json", std::ios::binary) << state;
  Manifest manifest = read_manifest(from.string());
  manifest.files["state.json"] = {state.size(), hash_bytes(state)};
  std::ofstream(to / "manifest.json") << (text.empty() ? to_json(manifest) : text);
}

TEST_F(ForeignRun, ABadStepHidesNothing) {
  ASSERT_EQ(duet(training("run")).code, 0);
  const fs::path run = directory_ / "run";
  auto state = nlohmann::json::parse(read_all(run / "checkpoints/step_00000030/state.json"));
  state["loader"]["samples"] = INT64_MAX;
  const std::string deep = std::string(75'000, '[') + std::string(75'000, ']');
  const std::string manifest =
      R"({"format":"duet-manifest","format_version":1,"run_id":"0","xxh3":"0","x":)" + deep + "}";
  for (const auto& [text, own] : std::vector<std::pair<std::string, std::string>>{
           {"{\"format\":" + deep + "}", ""}, {state.dump(), ""}, {"{}", manifest}}) {
    SCOPED_TRACE(text.substr(0, 40) + own.substr(0, 40));
    plant(run, text, own);
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"inspect", "run"},
             {"eval", "--checkpoint", "run", "--data", "text.txt"},
             {"generate", "--checkpoint", "run", "--prompt", "L", "--max_new_tokens", "2"},
             {"train", "--resume", "--out_dir", "run", "--max_iters", "31"}}) {
      const Ended ended = duet(command);
      EXPECT_EQ(ended.code, 0) << command[0] << ": " << ended.err;
      EXPECT_NE((ended.out + ended.err).find(kPlanted + std::string(" is not usable")),
                std::string::npos)
          << command[0] << ": " << ended.out << ended.err;
    }
    fs::remove_all(run / "checkpoints" / kPlanted);
    fs::remove_all(run / "checkpoints/step_00000031");
  }
}

TEST_F(ForeignRun, DeepFilesAreBadInput) {
  std::string dots = "a";
  for (int i = 0; i < 31'000; ++i) dots += ".a";
  write("deep.toml", "x = \"\"\"a\"\"\"\" # \"\"\"\"\n" + dots + " = 1\n");
  write("tokenizer.json", std::string(150'000, '['));
  fs::create_directory(directory_ / "lab");
  write("lab/experiment.json", "{\"format\":" + std::string(150'000, '['));
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"train", "deep.toml", "--data", "text.txt"},
                                             {"lab", "compare", "deep.toml", "--data", "text.txt"},
                                             {"lab", "report", "lab"},
                                             {"inspect", "tokenizer.json"},
                                             {"tokenize", "--tokenizer", "tokenizer.json"}}) {
    const Ended ended = duet(command);
    EXPECT_EQ(ended.code, 2) << command[0] << ": " << ended.err;
    EXPECT_NE(ended.err.find("nested too deeply"), std::string::npos) << ended.err;
  }
  ProcessOptions deep;
  deep.input = std::string(150'000, '[');
  EXPECT_EQ(duet({"tokenize", "--tokenizer", "byte", "--decode"}, deep).code, 2);
}

}  // namespace
}  // namespace duet::test
