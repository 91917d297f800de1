// Every line that the commands advise works when it is pasted, and is right.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "models/flops.h"
#include "tests/tools/process.h"
#include "train/text.h"

namespace duet::test {
namespace {

class AdviceCommandTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    fs::copy_file(directory_ / "text.txt", directory_ / "book.txt");
  }
  // Runs it as the shell of a user in the test's directory (or one below it) would.
  Ended shell(const std::string& line, const std::string& below = ".") const {
    const fs::path base = directory_ / "shell";
    const std::string whole = "cd '" + (directory_ / below).string() + "' && { " + line +
                              " ; } >'" + base.string() + ".out' 2>'" + base.string() +
                              ".err' </dev/null";
    const int status = std::system(whole.c_str());
    const Ended ended{WEXITSTATUS(status), read_all(base.string() + ".out"),
                      read_all(base.string() + ".err")};
    fs::remove(base.string() + ".out");
    fs::remove(base.string() + ".err");
    return ended;
  }
  // The rest of the line that begins with `mark`.
  static std::string after(const std::string& mark, const std::string& text) {
    const std::size_t at = text.find(mark);
    EXPECT_NE(at, std::string::npos) << mark << " is not in:\n" << text;
    if (at == std::string::npos) return "";
    const std::size_t begin = at + mark.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
};

// The lines of every --help, as they are but for fewer steps.
TEST_F(AdviceCommandTest, TheExamplesOfEveryHelpRun) {
  fs::create_directories(directory_ / "tools");
  fs::copy(fs::path(DUET_SOURCE_DIR) / "tools/experiments", directory_ / "tools/experiments",
           fs::copy_options::recursive);
  const std::vector<std::pair<std::string, std::string>> shorter = {
      {" train ", " --max_iters 4 --warmup_iters 1 --eval_iters 1 --batch_size 2"},
      {" train --resume ", " --max_iters 6 --eval_iters 1"},
      {" bench train ", " --steps 1 --warmup 0 --batch_size 1"},
      {" lab compare ",
       " --max_iters 1 --warmup_iters 1 --eval_iters 1 --batch_size 1 --vocab_size 80"},
      {" profile --preset ", " --steps 1 --warmup 0 --batch_size 1"},
      {" --diagnostics", " --sequences 1"}};
  std::set<std::string> done;
  for (const std::vector<std::string>& command : {std::vector<std::string>{},
                                                  {"train"},
                                                  {"eval"},
                                                  {"generate"},
                                                  {"inspect"},
                                                  {"tokenize"},
                                                  {"profile"},
                                                  {"bench"},
                                                  {"bench", "train"},
                                                  {"lab"},
                                                  {"lab", "compare"},
                                                  {"lab", "report"},
                                                  {"op"},
                                                  {"op", "check"},
                                                  {"op", "list"},
                                                  {"op", "new"},
                                                  {"presets"},
                                                  {"doctor"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Ended help = duet(arguments, {{}, {}, {}, DUET_BINARY});
    ASSERT_EQ(help.code, 0) << help.err;
    std::size_t at = help.out.find("\nexample");
    ASSERT_NE(at, std::string::npos) << help.out;
    at = help.out.find('\n', at + 1);
    std::istringstream lines(help.out.substr(at + 1));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      SCOPED_TRACE(line);
      ASSERT_EQ(line.rfind("  " + std::string(DUET_BINARY) + " ", 0), 0U) << "not the last lines";
      EXPECT_LE(line.size() - std::string(DUET_BINARY).size(), 70U);
      // Writes into a source tree, and runs every op: proved in op_new_test and op_command_test.
      if (line.find(" op new ") != std::string::npos ||
          line.find(" op list") != std::string::npos) {
        continue;
      }
      for (const auto& [part, more] : shorter) {
        if (line.find(std::string(DUET_BINARY) + part) != std::string::npos ||
            (part.front() == ' ' && part[1] == '-' && line.find(part) != std::string::npos)) {
          if (part == " train " && line.find("--resume") != std::string::npos) continue;
          line += more;
        }
      }
      if (!done.insert(line).second) continue;
      const Ended ended = shell(line);
      EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
    }
    EXPECT_GE(count, 1);
    EXPECT_LE(count, 3);
  }
}

TEST_F(AdviceCommandTest, WhatToTypeNextBeginsAsTheUserDid) {
  const std::string run = "my run's $HOME";
  fs::create_directory_symlink(fs::path(DUET_BINARY).parent_path(), directory_ / "built here");
  const std::string program = "built here/" + fs::path(DUET_BINARY).filename().string();
  const ProcessOptions as_called{{}, {}, {}, program};
  const Ended trained = duet(training(run), as_called);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string next = after("\n  next       ", trained.out);
  EXPECT_EQ(next, "'" + program + "' generate --checkpoint 'my run'\\''s $HOME' --prompt 'The '");
  const Ended generated = shell(next);
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(generated.out.substr(0, 4), "The ");

  const Ended complete = duet({"train", "--resume", "--out_dir", run}, as_called);
  EXPECT_EQ(shell(after("\n  train on   ", "\n" + complete.out)).code, 0) << complete.out;
  // Found through PATH.
  EXPECT_NE(duet(training("plain")).out.find("next       duet generate --checkpoint plain "),
            std::string::npos);
  const Ended unknown = duet({"frobnicate"}, {{}, {}, {}, "build/duet"});
  EXPECT_NE(unknown.err.find("; see build/duet --help\n"), std::string::npos) << unknown.err;
}

TEST_F(AdviceCommandTest, AnInterruptedExperimentNamesItsCommand) {
  write("my e.toml",
        "seeds = [1]\ndata = \"text.txt\"\nn_layer = 1\nn_embd = 16\nblock_size = 16\n"
        "batch_size = 2\nmax_iters = 100000\neval_iters = 1\n[[arm]]\nname = \"a\"\n");
  Process lab(directory_, {"lab", "compare", "my e.toml", "--out_dir", "lab"});
  ASSERT_TRUE(lab.wait_for("| starts"));
  ASSERT_TRUE(lab.wait_until(
      [&] { return !read_all(directory_ / "lab/runs/a-seed1/metrics.jsonl").empty(); }));
  lab.signal(SIGINT);
  const Ended ended = lab.wait();
  EXPECT_EQ(ended.code, 130);
  EXPECT_EQ(after("\ngo on      ", ended.out), "duet lab compare 'my e.toml' --out_dir lab");
}

TEST_F(AdviceCommandTest, ATextInPlaceOfAConfigurationIsNamed) {
  write("a book.txt", "\nFirst Citizen:\nBefore we proceed any further, hear me speak.\n");
  std::string large = "Call me Ishmael. Some years ago = never mind how long precisely.\n";
  while (large.size() < (2U << 20)) large += large;
  write("large.txt", large);
  write("short", "Hi\n");
  write("notes.md", "# A title\n\nA sentence. And [another](one).\n");
  const std::string end = ", expected TOML such as n_layer = 4; to train on it, write --data ";
  for (const auto& [file, message] : std::vector<std::pair<std::string, std::string>>{
           {"a book.txt", "a book.txt: a text, not a configuration: got \"First Citizen:\"" + end +
                              "'a book.txt'"},
           {"large.txt",
            "large.txt: a text, not a configuration: got \"Call me Ishmael. Some years ago = "
            "never ...\"" +
                end + "large.txt"},
           {"short", "short: a text, not a configuration: got \"Hi\"" + end + "short"},
           {"notes.md",
            "notes.md: a text, not a configuration: got \"# A title\"" + end + "notes.md"}}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"train"}, {"profile"}, {"bench", "train"}, {"lab", "compare"}}) {
      std::vector<std::string> arguments = command;
      arguments.push_back(file);
      const Ended ended = duet(arguments);
      EXPECT_EQ(ended.code, 2);
      EXPECT_EQ(ended.err, "error: " + message + "\n");
    }
  }
  // A configuration with a mistake stays one.
  const auto refused = [&](const std::string& name, const std::string& text) {
    write(name, text);
    return duet({"train", name}).err;
  };
  EXPECT_EQ(refused("a.toml", "Call me Ishmael.\n").rfind("error: a.toml:1:6: not TOML: ", 0), 0U);
  EXPECT_EQ(refused("b", "# mine\nseed = 1\nseed = 2\n").rfind("error: b:3:8: not TOML: ", 0), 0U);
  EXPECT_EQ(refused("c", "n_layer 4\n").rfind("error: c:1:9: not TOML: ", 0), 0U);
  // Neither kind for certain: both are named, unless the file is called .toml.
  const std::string either = "; if it is a text to train on, write --data ";
  EXPECT_NE(refused("e", "[chapter one\nCall me\xE9 Ishmael.\n").find(either + "e\n"),
            std::string::npos);
  EXPECT_EQ(refused("a.toml", "Call me Ishmael.\n").find(either), std::string::npos);
  EXPECT_EQ(refused("d", "[model]\n").rfind("error: d:1:2: [model]: got a table", 0), 0U);
}

TEST_F(AdviceCommandTest, ThePresetsAreTabulatedWithWhatIsCounted) {
  const Ended ended = duet({"presets"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  const auto json = nlohmann::json::parse(duet({"presets", "--json"}).out);
  ASSERT_EQ(json.size(), preset_names().size());
  for (const auto& row : json) {
    const std::string name = row["preset"];
    ModelConfig model = preset(name, preset_family(name));
    const std::int64_t parameters = parameters_of(model);
    EXPECT_EQ(row["parameters"], parameters);
    model.vocab_size = 256;
    EXPECT_EQ(row["parameters_on_bytes"], parameters_of(model));
    const std::size_t at = ended.out.find("\n" + name + " ");
    ASSERT_NE(at, std::string::npos) << name;
    const std::string line = ended.out.substr(at + 1, ended.out.find('\n', at + 1) - at);
    for (const std::string& cell :
         {format_count(parameters), format_count(row["parameters_on_bytes"].get<std::int64_t>()),
          std::to_string(model.block_size), std::to_string(model.ff_width())}) {
      EXPECT_NE(line.find(" " + cell), std::string::npos) << cell << " in " << line;
    }
  }
  EXPECT_NE(ended.out.find("59,360,320  33,759,808 euler"), std::string::npos) << ended.out;
  EXPECT_NE(duet({"--help"}).out.find("\n  presets "), std::string::npos);
}

TEST_F(AdviceCommandTest, APresetOnBytesSaysItsSize) {
  std::vector<std::string> command = {"train",    "--preset",     "60m", "--data",
                                      "text.txt", "--n_layer",    "1",   "--block_size",
                                      "16",       "--batch_size", "1",   "--max_iters",
                                      "0",        "--eval_iters", "1",   "--diagnostics",
                                      "0",        "--out_dir",    "run"};
  const Ended ended = duet(command);
  ASSERT_EQ(ended.code, 0) << ended.err;
  ModelConfig model = preset("60m", Family::llama);
  model.n_layer = 1;
  model.block_size = 16;
  const std::string whole = format_count(parameters_of(model));
  model.vocab_size = 256;
  EXPECT_NE(ended.out.find("HINT: preset 60m has " + format_count(parameters_of(model)) +
                           " parameters here, because the vocabulary is the tokenizer's 256 "
                           "instead of the preset's 50,257, where it has " +
                           whole + "\n"),
            std::string::npos)
      << ended.out;
  command.back() = "other";
  command.insert(command.end(), {"--vocab_size", "256"});
  EXPECT_EQ(duet(command).out.find("preset 60m has"), std::string::npos);  // asked for
  EXPECT_EQ(duet(training("tiny", {"--preset", "tiny"})).out.find("preset tiny has"),
            std::string::npos);
}

TEST_F(AdviceCommandTest, TheVocabularyThatIsAssumedIsSaid) {
  const std::string note =
      "note: the vocabulary is preset 60m's own, 50,257; a run on a text has its tokenizer's, 256: "
      "name the text with --data, or give --vocab_size 256\n";
  const Ended assumed = duet({"profile", "--plan", "--preset", "60m", "--depth", "0"});
  EXPECT_EQ(assumed.err, note);
  EXPECT_NE(assumed.out.find("vocabulary 50,257, 59,360,320 parameters"), std::string::npos);
  const Ended named =
      duet({"profile", "--plan", "--preset", "60m", "--depth", "0", "--data", "text.txt"});
  EXPECT_EQ(named.err, "");
  EXPECT_NE(named.out.find("vocabulary 256, 33,759,808 parameters"), std::string::npos)
      << named.out;
  EXPECT_EQ(duet({"profile", "--plan", "--preset", "tiny", "--depth", "0"}).err, "");
  EXPECT_EQ(duet({"profile", "--fit", "4GiB", "--preset", "60m"}).err, note);
}

TEST_F(AdviceCommandTest, KeysWithoutEffectOnAStepAreNamed) {
  const Ended plan = duet({"profile", "--plan", "--preset", "tiny", "--depth", "0", "--out_dir",
                           "zz", "--schedule", "wsd", "--batch_size", "2", "--out-dir", "y"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_EQ(plan.err,
            "note: duet profile ignores --out_dir, --schedule: no effect on the memory and time of "
            "a step\n");
  EXPECT_EQ(duet({"bench", "train", "--preset", "tiny", "--steps", "1", "--warmup", "0",
                  "--save_interval", "5"})
                .err,
            "note: duet bench train ignores --save_interval: no effect on the memory and time of a "
            "step\n");
  // A file is shared with train, whose keys are expected in it.
  write("a.toml", "preset = \"tiny\"\nout_dir = \"zz\"\n");
  EXPECT_EQ(duet({"profile", "a.toml", "--plan", "--depth", "0"}).err, "");
  for (const std::vector<std::string>& help :
       {std::vector<std::string>{"profile", "--help"}, {"bench", "train", "--help"}}) {
    const std::string text = duet(help).out;
    for (const char* key : {"--out_dir ", "--schedule ", "--save_interval ", "--max_iters "}) {
      EXPECT_EQ(text.find(key), std::string::npos) << key << text;
    }
    for (const char* key : {"--batch_size ", "--n_layer ", "--coupling ", "--recompute "}) {
      EXPECT_NE(text.find(key), std::string::npos) << key << text;
    }
  }
}

TEST_F(AdviceCommandTest, GenerateSaysBeforeItStartsWhereItWillStop) {
  ASSERT_EQ(duet(training("run")).code, 0);
  const std::vector<std::string> command = {"generate", "--checkpoint", "run", "--prompt", "Line"};
  const std::string note =
      "note: the context is 16: stops after 12 of 200 tokens; --slide goes on\n";
  const Ended ended = duet(command);
  EXPECT_EQ(ended.err.rfind(note, 0), 0U) << ended.err;
  // Before: in the order in which a terminal shows them.
  const auto both = [] { dup2(1, 2); };
  EXPECT_EQ(duet(command, {{}, both, {}}).out.rfind(note + "Line", 0), 0U);
  const auto quiet = [&](const std::vector<std::string>& more) {
    std::vector<std::string> whole = command;
    whole.insert(whole.end(), more.begin(), more.end());
    EXPECT_EQ(duet(whole).err, "");
  };
  quiet({"--max_new_tokens", "12"});
  quiet({"--slide"});
}

TEST_F(AdviceCommandTest, AResumeFromElsewhereNamesTheSavedPaths) {
  fs::create_directories(directory_ / "else where");
  ASSERT_EQ(duet(training("run", {"--val_data", "book.txt"})).code, 0);
  const std::string before = read_all(directory_ / "run/config.toml");
  EXPECT_NE(before.find("= \"text.txt\" "), std::string::npos) << before;  // as the user wrote it
  const std::string here = fs::canonical(directory_).string();
  const auto resume = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"train",  "--resume",    "--out_dir",
                                        "../run", "--max_iters", "32"};
    command.insert(command.end(), more.begin(), more.end());
    return Process(directory_ / "else where", command).wait();
  };
  const Ended data = resume({});
  EXPECT_EQ(data.code, 2);
  EXPECT_EQ(data.err, "error: ../run/config.toml: data is not there: got text.txt, relative to " +
                          here +
                          ", expected a file; say where it is: duet train --resume "
                          "--out_dir ../run --max_iters 32 --data " +
                          here + "/text.txt\n");
  const Ended val = resume({"--data", "../text.txt"});
  EXPECT_NE(val.err.find("val_data is not there: got book.txt, relative to "), std::string::npos)
      << val.err;
  EXPECT_EQ(read_all(directory_ / "run/config.toml"), before);
  const Ended wrong = resume({"--data", "none.txt"});
  EXPECT_NE(wrong.err.find("val_data is not there"), std::string::npos) << wrong.err;
  const Ended own = resume({"--data", "none.txt", "--val_data", "../book.txt"});
  EXPECT_EQ(own.err.rfind("error: none.txt: ", 0), 0U) << own.err;  // the user's own mistake
  const Ended mended = resume({"--data", "../text.txt", "--val_data", "../book.txt"});
  EXPECT_EQ(mended.code, 0) << mended.err;

  // Nothing says where: the remedy has no path.
  fs::remove(directory_ / "run/env.json");
  fs::remove(directory_ / "text.txt");
  const Ended unknown = duet({"train", "--resume", "--out_dir", "run", "--max_iters", "34"});
  EXPECT_EQ(unknown.err,
            "error: run/config.toml: data is not there: got ../text.txt, expected a file; say "
            "where it is: duet train --resume --out_dir run --max_iters 34 --data PATH\n");
  // A run that is complete needs no data.
  EXPECT_EQ(duet({"train", "--resume", "--out_dir", "run"}).code, 0);
}

}  // namespace
}  // namespace duet::test
