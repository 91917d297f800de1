// Usage errors of the command line: one message, exit code 2, nothing changed.
#include "tests/runtime/same_text.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class UsageTest : public CommandTest {};

struct Misuse {
  std::vector<std::string> arguments;
  std::string message;  // of standard error; "..." at the end: the rest may differ
  int code = 2;
};

// A file with one tensor of two floats.
std::string safetensors_of(const std::string& tensor) {
  const std::string header =
      "{\"" + tensor + "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  std::string out(8, '\0');
  out[0] = static_cast<char>(header.size());
  return out + header + std::string(8, '\0');
}

TEST_F(UsageTest, IsRefusedWithOneMessageAndChangesNothing) {
  write("bad.toml", "learing_rate = 1\n");
  write("junk.safetensors", "this is no tensor file at all, only text\n");
  write("weights.bin", "\x1f\x8b\x08 gzip");
  const std::vector<Misuse> rows = {
      {{"trian"}, "error: duet: no such command: got \"trian\"; did you mean train?\n"},
      {{"frobnicate"}, "error: duet: no such command: got \"frobnicate\"; see duet --help\n"},
      {{"bench"}, "error: duet bench: got \"\", expected train; see duet bench train --help\n"},
      {{"bench", "train", "--against", "none"},
       "error: --against: got \"none\", expected KEY=VALUE, several of them apart by spaces\n"},
      {{"bench", "train", "--against", "cuopling=none"},
       "error: --against: cuopling: no key has this name; did you mean coupling?\n"},
      {{"lab", "x"},
       "error: duet lab: got \"x\", expected compare or report; see duet lab --help\n"},
      {{"bench", "train", "--preset", "455m", "--batch_size", "8192"},
       "error: bench: the run does not fit: got ...",
       3},
      {{"prepare", "x", "--out", "d"}, "error: duet prepare: not in this version yet\n"},
      {{"train"}, "error: data: no training text is named; give --data FILE\n"},
      {{"train", "--data", "missing.txt"}, "error: missing.txt: ..."},
      {{"train", "bad.toml"},
       "error: bad.toml:1:1: learing_rate: no key has this name; did you mean learning_rate?\n"},
      {{"train", "no.toml"}, "error: no.toml: ..."},
      {{"train", "a.toml", "b.toml"},
       "error: duet train: got \"b.toml\", expected one config.toml\n"},
      {{"train", "--n-layr", "3"}, "error: --n-layr: no such flag; did you mean --n_layer?\n"},
      {{"train", "--n_layer"},
       "error: --n_layer: has no value; write --n_layer VALUE, or --n_layer=VALUE for one that "
       "begins with --\n"},
      {{"train", "--n_layer", "--seed"}, "error: --n_layer: has no value; ..."},
      {{"train", "--no-n_layer"}, "error: --no-n_layer: no such flag; did you mean --n_layer?\n"},
      {{"train", "--no-bias=true"},
       "error: --no-bias: takes no value; write --bias=true or --bias=false\n"},
      {{"train", "-x"}, "error: -x: no such flag; flags begin with --\n"},
      {{"train", "--n_layer", "x\x1b[31m"},
       "error: --n_layer: got \"x\\x1b[31m\", expected an integer in [0, 10000]\n"},
      {{"train", "--data", "text.txt", "--block_size", "100000"}, "error: ..."},
      {{"train", "--data", "text.txt", "--resume", "--out_dir", "none"},
       "error: none/config.toml: missing: no run to resume there; ..."},
      {{"train", "--data", "text.txt", "--vocab_size", "10"},
       "error: vocab_size: got 10, expected at least the tokenizer's 256; ..."},
      {{"train", "--data", "text.txt", "--tokenizer", "gone.json"}, "error: gone.json: ..."},
      {{"train", "--data", "$(touch x)"}, "error: $(touch x): ..."},
      {{"train", "--data", "text.txt", "--n_layer", "10000", "--n_embd", "65536", "--n_head", "64"},
       "error: train: the run does not fit: got ...",
       3},
      {{"train", "--data", "text.txt", "--init_from", "none", "--out_dir", "a/b"},
       "error: none: there is nothing of this name; ..."},
      {{"train", "--data", "text.txt", "--init_from", "junk.safetensors", "--out_dir", "a/b"},
       "error: junk.safetensors: ..."},
      {{"train", "--data", "text.txt", "--init_from", "text.txt", "--out_dir", "a/b"},
       "error: text.txt: not a safetensors file: got a text file that begins with ..."},
      {{"train", "--data", "text.txt", "--init_from", "gpt2", "--out_dir", "a/b"},
       "error: gpt2/model.safetensors: these look like GPT-2 weights, Hugging Face layout: got a "
       "tensor transformer.h.0.attn.c_attn.weight, expected ..."},
      {{"train", "--data", "text.txt", "--init_from", "gpt2/model.safetensors"},
       "error: gpt2/model.safetensors: these look like GPT-2 weights, Hugging Face layout: ..."},
      {{"train", "--data", "text.txt", "--init_from", "llama.safetensors"},
       "error: llama.safetensors: these look like LLaMA-like weights, Hugging Face layout: ..."},
      {{"train", "--data", "text.txt", "--preset", "61m"},
       "error: --preset: got \"61m\", expected one of tiny, small, nano, 60m, 150m, 350m, 455m; "
       "did "
       "you mean 60m?\n"},
      {{"train", "--preset", "tinny", "--data", "text.txt"},
       "error: --preset: got \"tinny\", expected one of tiny, small, nano, 60m, 150m, 350m, 455m; "
       "did you mean tiny?\n"},
      {{"train", "--bias", "nein", "--data", "text.txt"},
       "error: --bias: got \"nein\", expected true or false\n"},
      {{"train", "--resume", "yess"}, "error: --resume: got \"yess\", expected true or false\n"},
      {{"train", "\u2013data", "text.txt"},
       "error: \u2013data: begins with an en dash (U+2013), expected --data; type two hyphens\n"},
      {{"train", "--data", "text.txt", "\u2014\u2014n_layer", "1"},
       "error: \u2014\u2014n_layer: begins with an em dash (U+2014), expected --n_layer; type two "
       "hyphens\n"},
      {{"train", "--bias", "\u2013data", "text.txt"},
       "error: \u2013data: begins with an en dash ..."},
      {{"train", "--data", "\u2013bias", "text.txt"}, "error: --data: has no value; ..."},
      {{"train", "--min_lr", "\u22121"},
       "error: --min_lr: got \"\u22121\", expected a number in [-1, 1000]; it begins with a minus "
       "sign (U+2212), write -1\n"},
      {{"\u2014version"},
       "error: duet: got \"\u2014version\", which begins with an em dash (U+2014), expected "
       "--version; type two hyphens\n"},
      {{"profile", "--fit", ""}, "error: --fit: got \"\", expected at least one character\n"},
      {{"profile", "--plan", "--json="},
       "error: --json: got \"\", expected at least one character\n"},
      {{"bench", "train", "--against", ""},
       "error: --against: got \"\", expected at least one character\n"},
      {{"profile", ""}, "error: duet profile: got \"\", expected config.toml\n"},
      {{"inspect", ""}, "error: duet inspect: got \"\", expected PATH\n"},
      {{"eval", "--checkpoint", ".", "--data", ""},
       "error: --data: got \"\", expected at least one character\n"},
      {{"eval"}, "error: duet eval: --checkpoint is missing; give --checkpoint DIR\n"},
      {{"eval", "--checkpoint", "none", "--data", "text.txt"}, "error: none: ..."},
      {{"eval", "--checkpoint", ".", "--data", "text.txt", "--stride", "x"},
       "error: --stride: got \"x\", expected an integer in [0, 1048576]\n"},
      {{"generate", "--checkpoint", "none", "--prompt", "a", "--temperature", "-1"},
       "error: --temperature: got \"-1\", expected a number in [0.0, 1000.0]\n"},
      {{"generate", "--checkpoint", "none", "--prompt", ""},
       "error: --prompt: got \"\", expected at least one character\n"},
      {{"generate", "--checkpoint", "none", "--promt", "a"},
       "error: --promt: no such flag; did you mean --prompt?\n"},
      {{"inspect"}, "error: duet inspect: PATH is missing; see duet inspect --help\n"},
      {{"inspect", "junk.safetensors"}, "error: junk.safetensors: ..."},
      {{"inspect", "text.txt"},
       "error: text.txt: got a text file that begins with \"Line 0: the quick brown \", expected a "
       "run, a checkpoint, a .safetensors file or a tokenizer.json; ..."},
      {{"inspect", "old/step_00000010"},
       "error: old/step_00000010/manifest.json: missing: the checkpoint is damaged or ..."},
      {{"inspect", "weights.bin"}, "error: weights.bin: ..."},
      {{"inspect", "/dev/zero"}, "error: /dev/zero: not a regular file: got a device, ..."},
      {{"inspect", "."}, "error: .: ..."},
      {{"tokenize"}, "error: duet tokenize: --tokenizer is missing; give --tokenizer byte|PATH\n"},
      {{"tokenize", "--tokenizer", "gone.json"}, "error: gone.json: ..."},
      {{"doctor", "--fix"}, "error: --fix: no such flag; see duet doctor --help\n"},
  };
  fs::create_directory(directory_ / "gpt2");
  fs::create_directories(directory_ / "old/step_00000010");
  write("gpt2/model.safetensors", safetensors_of("transformer.h.0.attn.c_attn.weight"));
  write("llama.safetensors", safetensors_of("model.layers.0.self_attn.q_proj.weight"));
  const auto before = snapshot(directory_);
  for (const Misuse& row : rows) {
    std::string command;
    for (const std::string& word : row.arguments) command += " " + word;
    SCOPED_TRACE(command);
    const Ended ended = duet(row.arguments);
    EXPECT_EQ(ended.code, row.code);
    EXPECT_EQ(ended.out, "");
    const bool prefix =
        row.message.size() > 3 && row.message.substr(row.message.size() - 3) == "...";
    const std::string wanted = prefix ? row.message.substr(0, row.message.size() - 3) : row.message;
    EXPECT_EQ(prefix ? ended.err.substr(0, wanted.size()) : ended.err, wanted) << ended.err;
    EXPECT_TRUE(same_files(snapshot(directory_), before));
  }
}

TEST_F(UsageTest, ABooleanTakesEveryUsualWord) {
  for (const char* no : {"False", "off", "no", "0", "false"}) {
    const Ended ended = duet({"train", "--bias", no, "--resume", "FALSE", "--print-config"});
    EXPECT_EQ(ended.code, 0) << no << ended.err;
    EXPECT_NE(ended.out.find("= false             # flag"), std::string::npos) << ended.out;
  }
  write("run.toml", "bias = false\n");
  const Ended file = duet({"train", "--print-config", "run.toml"});  // a switch, then the file
  EXPECT_EQ(file.code, 0) << file.err;
}

// Before the step whose answer they are to hold: such a preset would take minutes.
TEST_F(UsageTest, FilesThatCannotBeWrittenAreFoundFirst) {
  fs::create_directory(directory_ / "folder");
  const auto before = snapshot(directory_);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& message) {
    arguments.insert(arguments.end(), {"--preset", "455m", "--batch_size", "1"});
    const Ended ended = duet(arguments);
    EXPECT_EQ(ended.code, 1) << ended.out;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(ended.err.rfind("error: " + message, 0), 0U) << ended.err;
    EXPECT_TRUE(same_files(snapshot(directory_), before));
  };
  for (const char* flag : {"--json", "--html", "--trace"}) {
    refused({"profile", flag, "none/a"}, "none/a: cannot write: none/ is no directory; make it");
    refused({"profile", flag, "folder"}, "folder: cannot write: got a directory, expected a file");
  }
  refused({"bench", "train", "--json", "text.txt/a"}, "text.txt/a: cannot write: text.txt/ is no");
  EXPECT_EQ(duet({"profile", "--plan", "--preset", "tiny", "--json", "/dev/null"}).code, 0);
}

TEST_F(UsageTest, HelpAndVersion) {
  EXPECT_EQ(duet({}).code, 2);
  const Ended help = duet({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("not in this version yet: prepare import export\n"), std::string::npos)
      << help.out;
  EXPECT_EQ(duet({"--version"}).out.substr(0, 5), "duet ");
  for (const char* command :
       {"train", "eval", "generate", "inspect", "tokenize", "bench", "doctor", "profile"}) {
    const Ended one = duet({command, "--help"});
    EXPECT_EQ(one.code, 0) << command;
    EXPECT_NE(one.out.find("exit codes: 0 ok, "), std::string::npos) << one.out;
    EXPECT_EQ(one.out.rfind("duet " + std::string(command), 0), 0U) << one.out;
  }
  EXPECT_NE(duet({"train", "--help"}).out.find("--learning_rate"), std::string::npos);
}

TEST_F(UsageTest, PrintConfigShowsSourcesAndReadsBack) {
  write("a.toml", "n_layer = 3\nlearning_rate = 6e-4\n");
  const Ended first = duet({"train", "a.toml", "--print-config", "--seed=9", "--bias"},
                           {{}, {}, {"LC_ALL=de_DE.UTF-8", "LC_NUMERIC=de_DE.UTF-8"}});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("learning_rate               = 0.0006            # file a.toml"),
            std::string::npos)
      << first.out;
  EXPECT_NE(first.out.find("seed                        = 9                 # flag"),
            std::string::npos);
  EXPECT_NE(first.out.find("bias                        = true              # flag"),
            std::string::npos);
  EXPECT_NE(first.out.find("n_head                      = 2                 # default"),
            std::string::npos);
  write("b.toml", first.out);
  const Ended second = duet({"train", "b.toml", "--print-config"});
  const auto values = [](const std::string& text) {
    std::istringstream in(text);
    std::string out;
    for (std::string line; std::getline(in, line);) out += line.substr(0, line.find('#')) + "\n";
    return out;
  };
  EXPECT_EQ(values(second.out), values(first.out));
}

TEST_F(UsageTest, TokenizeRoundTripsEveryByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const Ended ids = duet({"tokenize", "--tokenizer", "byte"}, {bytes, {}, {}});
  EXPECT_EQ(ids.code, 0);
  EXPECT_EQ(ids.out.substr(0, 10), "[0, 1, 2, ");
  EXPECT_EQ(duet({"tokenize", "--tokenizer", "byte", "--decode"}, {ids.out, {}, {}}).out, bytes);
  EXPECT_EQ(duet({"tokenize", "--tokenizer", "byte"}).out, "[]\n");
  const Ended bad = duet({"tokenize", "--tokenizer", "byte", "--decode"}, {"[1, 256]", {}, {}});
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(
      bad.err,
      "error: standard input: entry 1 of the array: got \"256\", expected an id in [0, 256)\n");
}

TEST_F(UsageTest, DoctorNamesWhatItFound) {
  const Ended ended = duet({"doctor"});
  EXPECT_EQ(ended.code, 0);
  for (const char* word : {"device     cpu", "threads    ", "CPU affinity", "oneDNN     "}) {
    EXPECT_NE(ended.out.find(word), std::string::npos) << ended.out;
  }
  const auto one_cpu = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof set, &set);
  };
  EXPECT_NE(duet({"doctor"}, {{}, one_cpu, {}}).out.find("threads    1 (CPU affinity 1,"),
            std::string::npos);
}

TEST_F(UsageTest, ClosedDescriptorsDoNotReceiveFiles) {
  const auto closed_out = [] { close(1); };
  const Ended ended = duet({"doctor"}, {{}, closed_out, {}});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("standard output: cannot write"), std::string::npos) << ended.err;
  const auto full_out = [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, 1);
    close(full);
  };
  for (const std::vector<std::string>& command : {std::vector<std::string>{"doctor"},
                                                  {"--help"},
                                                  {"--version"},
                                                  {"train", "--help"},
                                                  {"train", "--print-config"},
                                                  {"tokenize", "--tokenizer", "byte"}}) {
    const Ended full = duet(command, {"text", full_out, {}});
    EXPECT_EQ(full.code, 1) << command[0];
    EXPECT_EQ(full.err, "error: standard output: cannot write: No space left on device\n");
  }
  const auto closed_in = [] { close(0); };
  EXPECT_EQ(duet({"tokenize", "--tokenizer", "byte"}, {{}, closed_in, {}}).code, 1);
  const auto closed_err = [] { close(2); };
  EXPECT_EQ(duet({"trian"}, {{}, closed_err, {}}).code, 2);
}

}  // namespace
}  // namespace duet::test
