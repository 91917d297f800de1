// Whose files are whose: no command replaces a file of the user, and a run directory of somebody
// else leads nowhere outside itself.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tests/runtime/same_text.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class FilesCommandTest : public CommandTest {
 protected:
  void expect_refused(const std::vector<std::string>& arguments, const std::string& text) const {
    const auto before = snapshot(directory_);
    const Ended ended = duet(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find(text), std::string::npos) << text << "\n" << ended.err;
    EXPECT_TRUE(same_files(snapshot(directory_), before));
  }
  void link(const std::string& target, const std::string& name) const {
    fs::create_symlink(target, directory_ / name);
  }
  // A run of six steps with two checkpoints.
  Ended train_six(const std::string& out_dir, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words =
        training(out_dir, {"--eval_interval", "3", "--max_iters", "6"});
    words.insert(words.end(), more.begin(), more.end());
    return duet(words);
  }
  Ended resume(const std::string& out_dir, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"train", "--resume", "--out_dir", out_dir};
    words.insert(words.end(), more.begin(), more.end());
    return duet(words);
  }
  std::string losses(const std::string& run) const {
    std::string out;
    std::istringstream in(read_all(directory_ / run / "metrics.jsonl"));
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      out += json["step"].dump() + " " + json.value("train/loss", nlohmann::json()).dump() + "\n";
    }
    return out;
  }
};

const std::vector<std::string> kPlan = {"profile", "--plan", "--preset", "tiny"};

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(FilesCommandTest, AnAnswerIsNoInputAndReplacesNothingElse) {
  write("c.toml", "preset = \"tiny\"\n");
  write("notes.md", "my notes\n");
  write("page.html", "<!doctype html>\n<html lang=\"en\">\n<p>mine\n");
  write("package.json", "{\"version\":1,\"name\":\"mine\"}\n");
  link("text.txt", "link.txt");
  fs::create_hard_link(directory_ / "text.txt", directory_ / "hard.txt");
  for (const char* path : {"text.txt", "./text.txt", "link.txt", "hard.txt"}) {
    expect_refused(with(kPlan, {"--data", "text.txt", "--json", path}), "a file that is read here");
  }
  for (const char* flag : {"--json", "--html", "--trace"}) {
    expect_refused({"profile", "c.toml", "--plan", flag, "./c.toml"}, "a file that is read here");
  }
  expect_refused(with(kPlan, {"--json", "package.json"}), "the file holds something else: got ");
  expect_refused(with(kPlan, {"--html", "page.html"}), "the file holds something else: got ");
  expect_refused(with(kPlan, {"--trace", "notes.md"}), "the file holds something else: got ");
  expect_refused(with(kPlan, {"--json", "new", "--html", "./new"}), "the file of --json too");
  expect_refused({"profile", "--preset", "tiny", "--fit", "1GiB", "--json", "notes.md"},
                 "the file holds something else");
  expect_refused({"bench", "train", "--preset", "tiny", "--json", "notes.md"},
                 "the file holds something else");
  expect_refused({"bench", "train", "--data", "text.txt", "--json", "hard.txt"},
                 "a file that is read here");
  expect_refused({"profile", "--replay", "text.txt", "--json", "link.txt"},
                 "a file that is read here");
  expect_refused(training("run", {"--alloc_trace", "hard.txt"}), "a file that is read here");
  expect_refused(training("run", {"--alloc_trace", "notes.md"}), "the file holds something else");
}

TEST_F(FilesCommandTest, AnOlderAnswerIsReplaced) {
  for (int again = 0; again < 2; ++again) {  // the second replaces those of the first
    const Ended plan = duet(with(kPlan, {"--json", "a.json", "--html", "a.html", "--trace", "t"}));
    EXPECT_EQ(plan.code, 0) << plan.err;
    const Ended fits = duet({"profile", "--preset", "tiny", "--fit", "1GiB", "--json", "a.json"});
    EXPECT_EQ(fits.code, 0) << fits.err;
    const Ended bench = duet({"bench", "train", "--preset", "tiny", "--steps", "1", "--warmup", "0",
                              "--batch_size", "1", "--block_size", "8", "--json", "b.json"});
    EXPECT_EQ(bench.code, 0) << bench.err;
  }
  EXPECT_EQ(duet(with(kPlan, {"--json", "/dev/null"})).code, 0);
}

TEST_F(FilesCommandTest, ARunReplacesNoFileOfTheUser) {
  write("c.toml", "data = \"text.txt\"\nmax_iters = 1\n");
  for (const char* name : {"config.toml", "env.json", "tokenizer.json", "run.lock"}) {
    SCOPED_TRACE(name);
    fs::create_directory(directory_ / "mine");
    write(std::string("mine/") + name, "# mine\ndata = \"text.txt\"\n");
    const bool lock = name == std::string("run.lock");
    const char* text = lock ? "the file holds something else" : "is a file that no run wrote";
    expect_refused({"train", "c.toml", "--out_dir", "mine"}, text);
    if (!lock) expect_refused({"train", "c.toml", "--resume", "--out_dir", "mine"}, "mine/");
    fs::remove_all(directory_ / "mine");
  }
  fs::rename(directory_ / "c.toml", directory_ / "config.toml");
  expect_refused({"train", "config.toml", "--out_dir", "."}, "such as --out_dir ./run");
  write("e.toml", "data = \"text.txt\"\nseeds = [1]\nmax_iters = 1\n[[arm]]\nname = \"a\"\n");
  write("report.md", "mine\n");
  expect_refused({"lab", "compare", "e.toml", "--out_dir", "."},
                 "is a file that no experiment wrote");
}

TEST_F(FilesCommandTest, TheSettingsOfARunAreKeptAsItsCheckpoints) {
  ASSERT_EQ(train_six("run").code, 0);
  const std::vector<std::string> on = {"--max_iters", "9"};
  fs::copy(directory_ / "run", directory_ / "sound", fs::copy_options::recursive);
  const Ended sound = resume("sound", on);
  ASSERT_EQ(sound.code, 0) << sound.err;
  EXPECT_EQ(sound.err, "");
  const std::string whole = read_all(directory_ / "run/config.toml");
  const std::size_t batch = whole.find("batch_size"), rate = whole.find("learning_rate");
  ASSERT_LT(batch, rate);
  std::string edited = whole;
  edited.replace(edited.find("= 2 ", batch), 4, "= 5 ");
  const struct {
    const char* name;
    std::optional<std::string> config;
    std::vector<std::string> told;
  } rows[] = {
      {"edited", edited, {"was changed since the run wrote it", "\n  batch_size 5 -> 2\n"}},
      {"cut", whole.substr(0, rate), {"was changed", "\n  learning_rate none -> 0.003\n"}},
      {"torn", whole.substr(0, rate + 30), {"run/config.toml"}},
      {"empty", "", {"\n  batch_size none -> 2\n"}},
      {"gone",
       std::nullopt,
       {"run/config.toml is missing; what the checkpoint run/checkpoints/"
        "step_00000006 says holds\n"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const fs::path copy = directory_ / "copy";
    fs::rename(directory_ / "run", copy);
    fs::copy(copy, directory_ / "run", fs::copy_options::recursive);
    fs::remove(directory_ / "run/config.toml");
    if (row.config) write("run/config.toml", *row.config);
    const Ended resumed = resume("run", on);
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.err.substr(0, 6), "note: ");
    for (const std::string& text : row.told) {
      EXPECT_NE(resumed.err.find(text), std::string::npos) << text << "\n" << resumed.err;
    }
    EXPECT_EQ(losses("run"), losses("sound"));
    const std::string after = read_all(directory_ / "run/config.toml");
    EXPECT_NE(after.find("batch_size                  = 2 "), std::string::npos) << after;
    EXPECT_EQ(resume("run", on).err.find("config.toml"), std::string::npos);  // whole again
    fs::remove_all(directory_ / "run");
    fs::rename(copy, directory_ / "run");
  }
  // The user's own flag wins, and a run of an older version has no copy to go by.
  write("run/config.toml", edited);
  EXPECT_NE(resume("run", with(on, {"--batch_size", "3"})).out.find("batch_size 2 -> 3"),
            std::string::npos);
  fs::remove_all(directory_ / "run/checkpoints");
  write("run/config.toml", edited);
  expect_refused({"train", "--resume", "--out_dir", "run"},
                 "run/config.toml: was changed since the run wrote it, and there is no checkpoint "
                 "with a copy");
  fs::remove(directory_ / "run/config.toml");
  expect_refused({"train", "--resume", "--out_dir", "run"}, "start a run in another directory");
}

TEST_F(FilesCommandTest, LinksInARunDirectoryLeadNowhere) {
  ASSERT_EQ(train_six("run").code, 0);
  write("victim", "precious\n");
  fs::create_directories(directory_ / "docs");
  write("docs/thesis", "precious\n");
  const std::vector<std::string> on = {"--max_iters", "9"};
  const auto untouched = [&] {
    EXPECT_EQ(read_all(directory_ / "victim"), "precious\n");
    EXPECT_EQ(read_all(directory_ / "docs/thesis"), "precious\n");
    EXPECT_EQ(read_all(directory_ / "text.txt").substr(0, 5), "Line ");
  };
  for (const char* name : {"config.toml", "env.json", "tokenizer.json", "metrics.jsonl"}) {
    link("../victim", std::string("run/") + name + ".tmp");
    fs::rename(directory_ / "run" / name, directory_ / name);
    link("../victim", std::string("run/") + name);
  }
  link("../../..", "run/checkpoints/.tmp-step_00000009-x");
  link("../../docs", "run/checkpoints/.trash-step_00000001-x");
  const Ended resumed = resume("run", on);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  untouched();
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(directory_ / "run/config.toml")));

  fs::remove(directory_ / "run/run.lock");
  link("../victim", "run/run.lock");
  expect_refused({"train", "--resume", "--out_dir", "run", "--max_iters", "12"},
                 "run.lock: not a regular file: got a symbolic link");
  fs::remove(directory_ / "run/run.lock");
  link("made", "trace");
  EXPECT_NE(resume("run", {"--max_iters", "12", "--alloc_trace", "trace"}).code, 0);
  EXPECT_FALSE(fs::exists(directory_ / "made"));
  fs::rename(directory_ / "run/checkpoints", directory_ / "elsewhere");
  link("../elsewhere", "run/checkpoints");
  EXPECT_EQ(resume("run", {"--max_iters", "12"}).code, 1);
  untouched();
}

TEST_F(FilesCommandTest, APipeForALogIsNotWaitedFor) {
  ASSERT_EQ(train_six("run").code, 0);
  fs::remove(directory_ / "run/metrics.jsonl");
  ASSERT_EQ(mkfifo((directory_ / "run/metrics.jsonl").c_str(), 0600), 0);
  const Ended resumed = resume("run", {"--max_iters", "9"});
  EXPECT_EQ(resumed.code, 2) << resumed.out;
  EXPECT_NE(resumed.err.find("not a regular file: got a pipe (FIFO)"), std::string::npos)
      << resumed.err;
}

TEST_F(FilesCommandTest, NothingIsLeftOfWhatWasOnItsWay) {
  ASSERT_EQ(train_six("run").code, 0);
  const char* kTrash = "run/checkpoints/.trash-step_00000001-0123456789abcdef";
  fs::create_directories(directory_ / kTrash);
  const Ended complete = resume("run");
  EXPECT_EQ(complete.code, 0) << complete.err;
  EXPECT_NE(complete.err.find("already complete"), std::string::npos) << complete.err;
  EXPECT_FALSE(fs::exists(directory_ / kTrash));
  const auto before = snapshot(directory_);
  EXPECT_EQ(resume("run").code, 0);
  EXPECT_TRUE(same_files(snapshot(directory_), before));

  for (const char* name : {"config.toml.tmp", "env.json.tmp-0123456789abcdef",
                           "checkpoints/.tmp-step_00000007-x/state.json"}) {
    fs::create_directories((directory_ / "run" / name).parent_path());
    write(std::string("run/") + name, "half");
  }
  write("run/config.toml.tmp-mine", "mine");
  EXPECT_EQ(resume("run", {"--max_iters", "9"}).code, 0);
  EXPECT_FALSE(fs::exists(directory_ / "run/config.toml.tmp"));
  EXPECT_FALSE(fs::exists(directory_ / "run/env.json.tmp-0123456789abcdef"));
  EXPECT_FALSE(fs::exists(directory_ / "run/checkpoints/.tmp-step_00000007-x"));
  EXPECT_TRUE(fs::exists(directory_ / "run/config.toml.tmp-mine"));
}

}  // namespace
}  // namespace duet::test
