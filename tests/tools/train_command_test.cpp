// duet train as a process: what a run leaves, signals, kills and resumes, two at once, lost output.
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/runtime/same_text.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class TrainCommandTest : public CommandTest {
 protected:
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> out;
    std::istringstream in(read_all(directory_ / run / "metrics.jsonl"));
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }
  // Everything that must not depend on interruptions: no times, no rates.
  std::string losses(const std::string& run) const {
    std::string out;
    for (const auto& line : metrics(run)) {
      out += line["step"].dump();
      for (const char* key : {"tokens", "train/loss", "train/lr", "train/grad_norm", "val/loss",
                              "val/bpb", "coupling/dt"}) {
        if (line.contains(key)) out.append(" ").append(line[key].dump());
      }
      out += "\n";
    }
    return out;
  }
  // A safetensors file without the one thing that two runs never share: their id.
  std::string tensors(const fs::path& path) const {
    const std::string bytes = read_all(directory_ / path);
    if (bytes.size() < 8) return "";
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    auto header = nlohmann::json::parse(bytes.substr(8, length));
    EXPECT_EQ(header["__metadata__"].erase("run_id"), 1U) << path;
    return header.dump() + bytes.substr(8 + length);
  }
  void expect_same_end(const std::string& a, const std::string& b, const std::string& step) const {
    for (const char* file : {"model.safetensors", "optim.safetensors"}) {
      const fs::path below = fs::path("checkpoints") / step / file;
      const std::string bytes = tensors(a / below);
      EXPECT_GT(bytes.size(), 10'000U) << below;
      EXPECT_TRUE(bytes == tensors(b / below)) << b << " differs in " << below;
    }
    EXPECT_EQ(losses(a), losses(b));
  }
};

TEST_F(TrainCommandTest, ARunWithoutAStepLeavesNoTrace) {
  for (const bool there : {false, true}) {
    if (there) fs::create_directory(directory_ / "run");
    const auto before = snapshot(directory_);
    const Ended ended = duet(training("run", {"--max_iters", "0"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.out.find("done: 0 steps"), std::string::npos) << ended.out;
    EXPECT_EQ(ended.out.find("--checkpoint"), std::string::npos) << ended.out;
    EXPECT_TRUE(same_files(snapshot(directory_), before));
  }
}

TEST_F(TrainCommandTest, ValidationOnTheTrainingTextIsHintedAt) {
  fs::create_symlink("text.txt", directory_ / "link.txt");
  fs::copy_file(directory_ / "text.txt", directory_ / "copy.txt");
  const auto hint = [&](const std::string& val_data) {
    const Ended ended =
        duet(training("run-" + val_data, {"--max_iters", "1", "--val_data", val_data}));
    return ended.out.find("HINT: val_data holds the same text as data: ") != std::string::npos;
  };
  EXPECT_TRUE(hint("text.txt"));
  EXPECT_TRUE(hint("link.txt"));
  EXPECT_TRUE(hint("copy.txt"));
  write("other.txt", read_all(directory_ / "text.txt") + "more");
  EXPECT_FALSE(hint("other.txt"));
}

TEST_F(TrainCommandTest, ARunLeavesItsFilesAndTheOthersReadThem) {
  const Ended run = duet(training("run"));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  for (const char* word :
       {"| tokens/step  2 x 16 x 1 x 1 = 32  (batch x block x accumulation x ranks)",
        "\nstep 30/30 | loss ", "\nstep 30 | val loss ", " | bpb ", "\ndone: 30 steps",
        "duet generate --checkpoint run"}) {
    EXPECT_NE(run.out.find(word), std::string::npos) << word << "\n" << run.out;
  }
  for (const char* name :
       {"config.toml", "env.json", "metrics.jsonl", "tokenizer.json",
        "checkpoints/step_00000030/model.safetensors",
        "checkpoints/step_00000030/optim.safetensors", "checkpoints/step_00000030/state.json",
        "checkpoints/step_00000030/manifest.json"}) {
    EXPECT_TRUE(fs::exists(directory_ / "run" / name)) << name;
  }
  const auto lines = metrics("run");
  std::set<std::int64_t> steps;
  for (const auto& line : lines) EXPECT_TRUE(steps.insert(line["step"].get<std::int64_t>()).second);
  EXPECT_EQ(steps, (std::set<std::int64_t>{0, 1, 5, 10, 15, 20, 25, 30}));
  for (const char* key :
       {"step", "tokens", "time", "train/loss", "train/lr", "train/grad_norm", "train/tok_per_sec",
        "val/loss", "val/ppl", "val/bpb", "memory/peak_bytes", "coupling/dt"}) {
    EXPECT_TRUE(lines.back().contains(key)) << key;
  }
  const auto env = nlohmann::json::parse(read_all(directory_ / "run" / "env.json"));
  for (const char* key : {"version", "compiler", "cpu", "threads", "onednn", "command_line"}) {
    EXPECT_TRUE(env.contains(key)) << key;
  }

  const Ended eval = duet({"eval", "--checkpoint", "run", "--data", "text.txt", "--json"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  const auto result = nlohmann::json::parse(eval.out);
  EXPECT_GT(result["loss"].get<double>(), 0);
  EXPECT_LT(result["loss"].get<double>(), 5.5);
  EXPECT_EQ(result["window"], 16);
  EXPECT_NE(duet({"eval", "--checkpoint", "run/checkpoints/step_00000020", "--data", "text.txt"})
                .out.find("protocol       window 16, stride 16,"),
            std::string::npos);

  const std::vector<std::string> look = {"eval",     "--checkpoint",  "run",         "--data",
                                         "text.txt", "--diagnostics", "--sequences", "3"};
  const Ended table = duet(look);
  EXPECT_NE(table.out.find("attention of 3 sequences of 16 tokens, mean over heads\nlayer    rank"),
            std::string::npos)
      << table.out;
  std::vector<std::string> as_json = look;
  as_json.emplace_back("--json");
  const auto inside = nlohmann::json::parse(duet(as_json).out)["diagnostics"];
  EXPECT_GE(inside["attn/effective_rank"][0][0].get<double>(), 1);
  EXPECT_LE(inside["attn/effective_rank"][0][0].get<double>(), 16);
  EXPECT_LE(inside["attn/entropy_norm"][0][0].get<double>(), 1);

  const std::vector<std::string> say = {"generate", "--checkpoint", "run", "--prompt", "Line "};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), say.begin(), say.end());
    return duet(more);
  };
  const Ended first = with({"--max_new_tokens", "8", "--seed", "3"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out.size(), 5U + 8U + 1U);
  EXPECT_EQ(first.out.substr(0, 5), "Line ");
  EXPECT_EQ(first.out, with({"--max-new-tokens=8", "--seed=3"}).out);
  const Ended full = with({"--max_new_tokens", "40"});
  EXPECT_EQ(full.code, 0);
  EXPECT_EQ(full.out.size(), 16U + 1U);
  EXPECT_EQ(full.err, "note: the context is 16: stops after 11 of 40 tokens; --slide goes on\n");
  const std::string slid = with({"--max_new_tokens", "40", "--slide", "--seed", "3"}).out;
  EXPECT_EQ(slid.size(), 5U + 40U + 1U);
  // The second window begins with the newest 8 tokens; its draws are not those of the next seed.
  EXPECT_NE(slid.substr(8, 16), duet({"generate", "--checkpoint", "run", "--prompt",
                                      slid.substr(8, 8), "--max_new_tokens", "8", "--seed", "4"})
                                    .out.substr(0, 16));
  EXPECT_EQ(duet({"generate", "--checkpoint", "run", "--prompt", std::string(17, 'a')}).code, 2);
  EXPECT_EQ(duet({"generate", "--checkpoint", "run", "--prompt", std::string(17, 'a'), "--slide",
                  "--max_new_tokens", "3"})
                .out.size(),
            17U + 3U + 1U);

  const Ended inspect = duet({"inspect", "run"});
  EXPECT_EQ(inspect.code, 0);
  for (const char* word : {"step       30 ", "embedding.weight", "blocks.1.attn.coupling.dt",
                           "model.safetensors", "optim.safetensors", "AdamW, 30 steps"}) {
    EXPECT_NE(inspect.out.find(word), std::string::npos) << word << "\n" << inspect.out;
  }
  EXPECT_EQ(duet({"inspect", "run/checkpoints/step_00000030/model.safetensors"}).code, 0);
  EXPECT_EQ(duet({"inspect", "run/tokenizer.json"}).code, 0);

  const fs::path damaged = directory_ / "damaged/step_00000030";
  fs::create_directories(damaged);
  for (const char* file : {"model.safetensors", "optim.safetensors", "state.json"}) {
    fs::copy_file(directory_ / "run/checkpoints/step_00000030" / file, damaged / file);
  }
  for (const char* end : {"", "/"}) {
    const Ended incomplete = duet({"inspect", std::string("damaged/step_00000030") + end});
    EXPECT_EQ(incomplete.code, 2);
    EXPECT_NE(incomplete.err.find("/manifest.json: missing: the checkpoint is damaged or "),
              std::string::npos)
        << incomplete.err;
  }

  const auto before = snapshot(directory_);
  const Ended again = duet(training("run"));
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("already holds a run; add --resume"), std::string::npos) << again.err;
  const Ended complete = duet({"train", "--resume", "--out_dir", "run"});
  EXPECT_EQ(complete.code, 0);
  EXPECT_NE(complete.err.find("note: already complete"), std::string::npos) << complete.err;
  EXPECT_TRUE(same_files(snapshot(directory_), before));
}

// A run that would go on for long, interrupted once it has printed `mark`; then resumed for ten
// steps more than its newest checkpoint, and compared with a run of as many steps without a break.
// The learning rate does not depend on the length: constant after the warm-up.
TEST_F(TrainCommandTest, InterruptedAndResumedEqualsUninterruptedBitForBit) {
  const auto long_run = [](const std::string& out_dir, const std::string& max_iters) {
    return training(out_dir, {"--max_iters", max_iters, "--schedule", "constant", "--warmup_iters",
                              "4", "--dropout", "0.1", "--save_interval", "5"});
  };
  struct Interruption {
    int signal, code;
    const char* mark;
  };
  for (const Interruption& how :
       {Interruption{SIGKILL, 1000 + SIGKILL, "step 15 | saved"},
        Interruption{SIGTERM, 143, "step 5/"}, Interruption{SIGINT, 130, "step 15/"}}) {
    SCOPED_TRACE(how.code);
    const std::string run = "run" + std::to_string(how.code), whole = "whole" + run;
    {
      Process stopped(directory_, long_run(run, "100000"));
      ASSERT_TRUE(stopped.wait_for(how.mark));
      stopped.signal(how.signal);
      const Ended ended = stopped.wait();
      EXPECT_EQ(ended.code, how.code) << ended.err;
      EXPECT_EQ(
          ended.out.find("go on      duet train --resume --out_dir " + run) != std::string::npos,
          how.signal != SIGKILL)
          << ended.out;
    }
    std::int64_t newest = 0;
    for (const auto& entry : fs::directory_iterator(directory_ / run / "checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("step_", 0) == 0)
        newest = std::max(newest, std::int64_t{std::stol(name.substr(5))});
    }
    ASSERT_GE(newest, 5);
    const std::string steps = std::to_string(newest + 10);
    const Ended resumed = duet({"train", "--resume", "--out_dir", run, "--max_iters", steps});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find("changed since the run began: max_iters 100000 -> " + steps),
              std::string::npos)
        << resumed.out;
    ASSERT_EQ(duet(long_run(whole, steps)).code, 0);
    expect_same_end(whole, run, std::string("step_").append(8 - steps.size(), '0') + steps);
  }
}

// `timeout` signals the child and then its group: the same wish, a moment apart.
TEST_F(TrainCommandTest, ASignalThatArrivesTwiceStillSaves) {
  Process run(directory_, training("run", {"--max_iters", "100000", "--save_interval", "100000"}));
  ASSERT_TRUE(run.wait_for("step 5/"));
  run.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  run.signal(SIGINT);
  const Ended ended = run.wait();
  EXPECT_EQ(ended.code, 130) << ended.err;
  EXPECT_NE(ended.out.find("go on      duet train --resume"), std::string::npos) << ended.out;
  EXPECT_EQ(duet({"inspect", "run"}).code, 0);
}

TEST_F(TrainCommandTest, ASecondRunInTheDirectoryIsRefused) {
  Process first(directory_, training("run", {"--max_iters", "100000"}));
  ASSERT_TRUE(first.wait_for("step 10 | saved"));
  first.signal(SIGHUP);  // a run goes on without its terminal
  ASSERT_TRUE(first.wait_for("step 30 | saved"));
  const Ended second = duet({"train", "--resume", "--out_dir", "run"});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another run is using it (pid "), std::string::npos) << second.err;
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
  EXPECT_EQ(duet({"train", "--resume", "--out_dir", "run", "--max_iters", "1"}).code, 0);
}

TEST_F(TrainCommandTest, LostOutputAndOddSurroundingsDoNotMatter) {
  ASSERT_EQ(duet(training("whole")).code, 0);
  const auto gone_reader = [] {
    int ends[2];
    if (pipe(ends) != 0) _exit(97);
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
  };
  const auto full_disk = [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, 1);
    close(full);
  };
  const auto small_stack = [] {
    const rlimit limit{256 << 10, 256 << 10};
    setrlimit(RLIMIT_STACK, &limit);
    const rlimit files{64, 64};
    setrlimit(RLIMIT_NOFILE, &files);
  };
  const std::vector<std::pair<std::string, ProcessOptions>> cases = {
      {"closed", {{}, [] { close(1); }, {}}},
      {"nothing_open", {{}, [] { close(0), close(1), close(2); }, {}}},
      {"pipe", {{}, gone_reader, {}}},
      {"full", {{}, full_disk, {}}},
      {"limits", {{}, small_stack, {}}},
      {"umask", {{}, [] { umask(077); }, {}}},
      {"environment",
       {{},
        [] { unsetenv("HOME"); },
        {"LC_ALL=de_DE.UTF-8", "LC_NUMERIC=de_DE.UTF-8", "TZ=Nowhere/Odd", "TMPDIR=/nowhere",
         "TERM=dumb", "NO_COLOR=1"}}},
  };
  for (const auto& [name, options] : cases) {
    SCOPED_TRACE(name);
    const Ended ended = duet(training(name), options);
    EXPECT_EQ(ended.code, 0) << ended.err;
    expect_same_end("whole", name, "step_00000030");
    const std::string lost = "note: standard output: cannot write: ";
    if (name == "closed" || name == "pipe" || name == "full") {
      EXPECT_EQ(ended.err.find(lost), 0U) << ended.err;
      EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    } else {
      EXPECT_EQ(ended.err, "");
    }
  }
}

// The address space ends (ulimit -v) in the plan, or later in an allocation: always one
// message that names the limit, and nothing left behind.
TEST_F(TrainCommandTest, AnAddressSpaceLimitIsNamed) {
  int refused = 0;
  for (const rlim_t mib : {90, 130, 170, 190}) {
    const auto limited = [mib] {
      const rlimit limit{mib << 20, mib << 20};
      setrlimit(RLIMIT_AS, &limit);
    };
    const auto before = snapshot(directory_);
    const Ended ended = duet(training("run", {"--n_embd", "512", "--batch_size", "8", "--threads",
                                              "1", "--max_iters", "1", "--eval_iters", "1"}),
                             {{}, limited, {}});
    if (ended.code == 0) break;
    SCOPED_TRACE(mib);
    ++refused;
    EXPECT_EQ(ended.code, 3) << ended.err;
    EXPECT_NE(ended.err.find("address-space limit (ulimit -v)"), std::string::npos) << ended.err;
    EXPECT_TRUE(same_files(snapshot(directory_), before));
  }
  EXPECT_GT(refused, 2);
}

TEST_F(TrainCommandTest, AnUnwritablePlaceIsRefusedBeforeTraining) {
  write("file", "x");
  const Ended blocked = duet(training("file/run"));
  EXPECT_NE(blocked.code, 0);
  EXPECT_EQ(blocked.out, "");
  EXPECT_EQ(blocked.err,
            "error: file: cannot make the directory: got a file of this name, expected a directory "
            "or nothing; choose another directory (for a run: another out_dir)\n");
  fs::create_directory(directory_ / "locked");
  fs::permissions(directory_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  if (access((directory_ / "locked").c_str(), W_OK) != 0) {  // root may write anywhere
    EXPECT_EQ(duet(training("locked/run")).code, 1);
  }
  fs::permissions(directory_ / "locked", fs::perms::owner_all);
}

TEST_F(TrainCommandTest, NonFiniteTrainingStopsWithCodeFour) {
  const Ended ended = duet(
      training("run", {"--learning_rate", "1000", "--grad_clip", "0", "--warmup_iters", "0",
                       "--weight_decay", "1000", "--eval_interval", "1000", "--max_iters", "400"}));
  EXPECT_EQ(ended.code, 4) << ended.out << ended.err;
  EXPECT_NE(ended.err.find("in a row were not finite"), std::string::npos) << ended.err;
}

TEST_F(TrainCommandTest, InitFromTakesTheShapeAndTheWeights) {
  ASSERT_EQ(duet(training("first")).code, 0);
  const Ended second =
      duet({"train", "--init_from", "first", "--data", "text.txt", "--out_dir", "second",
            "--max_iters", "3", "--batch_size", "2", "--eval_iters", "2"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(metrics("first").back()["val/loss"], metrics("second").front()["val/loss"]);
  const Ended other = duet({"train", "--init_from", "first", "--data", "text.txt", "--out_dir",
                            "third", "--n_embd", "32"});
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.err,
            "error: init_from: first holds another model: these keys differ (checkpoint -> asked "
            "for):\n  n_embd 16 -> 32\nremove them: the checkpoint fixes the model's shape\n");
  EXPECT_FALSE(fs::exists(directory_ / "third"));
}

}  // namespace
}  // namespace duet::test
