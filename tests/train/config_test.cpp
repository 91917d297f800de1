// Configuration: the order of sources, the key table, hostile files and flags with their messages.
#include "train/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "runtime/error.h"
#include "train/config_file.h"
#include "train/device_choice.h"

namespace duet::test {
namespace {

namespace fs = std::filesystem;

// An empty directory that is the current one until the end of the test.
class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::temp_directory_path() /
                 concat("duet_config_", info->name(), "_", static_cast<long>(getpid()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    fs::current_path(directory_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(directory_);
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

 private:
  fs::path before_, directory_;
};

std::vector<Setting> flags(std::vector<std::pair<std::string, std::string>> pairs) {
  std::vector<Setting> out;
  for (auto& [key, value] : pairs) out.push_back({key, FlagText{value}, "--" + key});
  return out;
}

// The text of the Error that f throws, which must be of the kind.
std::string message(ErrorKind kind, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST_F(ConfigTest, FlagsWinOverTheFileAndTheFileOverThePreset) {
  write("a.toml", "preset = \"small\"\nn_layer = 3\nlearning-rate = 0.002\nseed = 5\n");
  const ResolvedConfig c = resolve_config({"a.toml", flags({{"seed", "7"}, {"n_head", "8"}})});
  EXPECT_EQ(c.run.model.n_layer, 3);
  EXPECT_EQ(c.run.model.n_embd, 256);
  EXPECT_EQ(c.run.model.n_head, 8);
  EXPECT_EQ(c.run.seed, 7U);
  EXPECT_EQ(c.run.learning_rate, 0.002);
  EXPECT_EQ(c.source("n_layer"), ConfigSource::file);
  EXPECT_EQ(c.source("n_embd"), ConfigSource::preset);
  EXPECT_EQ(c.source("seed"), ConfigSource::flag);
  EXPECT_EQ(c.source("beta1"), ConfigSource::standard);
  EXPECT_EQ(c.run.model.vocab_size, 0);  // the tokenizer's
}

TEST_F(ConfigTest, FamilyAndPresetDecideTheDefaults) {
  EXPECT_EQ(resolve_config({"", flags({{"family", "gpt2"}})}).run.model.coupling,
            CouplingKind::none);
  EXPECT_EQ(resolve_config({}).run.model.coupling, CouplingKind::euler);
  EXPECT_TRUE(resolve_config({"", flags({{"preset", "nano"}})}).run.model.bias);
  const ResolvedConfig c = resolve_config({"", flags({{"preset", "nano"}, {"family", "llama"}})});
  EXPECT_EQ(c.run.model.family, Family::llama);
  EXPECT_EQ(c.run.model.n_embd, 128);
}

TEST_F(ConfigTest, ATaskHasDefaultsOfItsOwn) {
  const ResolvedConfig bare = resolve_config({"", flags({{"task", "mqar"}})});
  EXPECT_EQ(bare.run.model.family, Family::gpt2);
  EXPECT_EQ(bare.run.model.coupling, CouplingKind::none);
  EXPECT_EQ(bare.run.schedule, ScheduleKind::constant);
  const std::string toml = config_toml(bare);
  for (const char* key : {"family", "n_head", "block_size", "vocab_size", "mqar_pairs",
                          "batch_size", "max_iters", "learning_rate", "schedule"}) {
    EXPECT_EQ(bare.source(key), ConfigSource::task) << key;
    const std::size_t line = toml.find(concat("\n", key, " "));
    ASSERT_NE(line, std::string::npos) << key;
    EXPECT_EQ(toml.substr(toml.find('\n', line + 1) - 8, 8), "  # task") << key;
  }
  EXPECT_EQ(bare.source("dropout"), ConfigSource::standard);

  const ResolvedConfig said = resolve_config(
      {"", flags({{"task", "mqar"}, {"preset", "tiny"}, {"max_iters", "5"}, {"n_head", "4"}})});
  EXPECT_EQ(said.run.max_iters, 5);
  EXPECT_EQ(said.run.model.n_head, 4);
  EXPECT_EQ(resolve_config({"", flags({{"task", "mqar"}, {"preset", "tiny"}})}).run.model.n_head,
            2);
  EXPECT_EQ(said.run.model.n_embd, 64);  // the preset's
  EXPECT_EQ(said.run.model.family, Family::gpt2);
  EXPECT_TRUE(said.run.model.bias);
  const ResolvedConfig llama = resolve_config({"", flags({{"task", "mqar"}, {"family", "llama"}})});
  EXPECT_EQ(llama.run.model.activation, Activation::swiglu);
  EXPECT_EQ(resolve_config({}).source("family"), ConfigSource::standard);
}

TEST_F(ConfigTest, EveryValueReadsBackFromWhatIsWritten) {
  const ResolvedConfig first =
      resolve_config({"", flags({{"family", "gpt2"},
                                 {"n_layer", "3"},
                                 {"bias", "false"},
                                 {"coupling", "euler"},
                                 {"coupling_layers", "0, 2"},
                                 {"learning_rate", "6e-4"},
                                 {"adam_eps", "1e-12"},
                                 {"seed", "9223372036854775807"},
                                 {"data", "a \"quoted\" \\ tab\t\xC3\xA9.txt"},
                                 {"schedule", "wsd"}})});
  write("b.toml", config_toml(first));
  const ResolvedConfig second = resolve_config({"b.toml", {}});
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(toml_value(key, first.run), toml_value(key, second.run)) << key.name;
  }
}

TEST_F(ConfigTest, TheShortestTextOfANumberIsWritten) {
  const std::string toml = config_toml(resolve_config({"", flags({{"learning_rate", "6e-4"}})}));
  EXPECT_NE(toml.find("learning_rate               = 0.0006            # flag"), std::string::npos)
      << toml;
  EXPECT_NE(toml.find("scoring                     = \"softmax\""), std::string::npos);
}

TEST_F(ConfigTest, ADefaultWarmupFitsAShortRun) {
  EXPECT_EQ(resolve_config({"", flags({{"max_iters", "30"}})}).run.warmup_iters, 3);
  EXPECT_EQ(resolve_config({}).run.warmup_iters, 100);
}

TEST_F(ConfigTest, DashesAndUnderscoresAreAlike) {
  write("c.toml", "max-iters = 5\nactivation = \"gelu-tanh\"\n");
  const ResolvedConfig c = resolve_config({"c.toml", {}});
  EXPECT_EQ(c.run.max_iters, 5);
  EXPECT_EQ(c.run.model.activation, Activation::gelu_tanh);
  for (const char* word : {"symplectic-euler", "symplectic_euler"}) {
    EXPECT_EQ(resolve_config({"", flags({{"coupling", word}})}).run.model.coupling,
              CouplingKind::symplectic_euler);
  }
}

TEST_F(ConfigTest, AResumedRunKeepsItsValuesAndFlagsWin) {
  fs::create_directory("run");
  ResolvedConfig first = resolve_config(
      {"", flags({{"n_layer", "3"}, {"learning_rate", "0.5"}, {"out_dir", "elsewhere"}})});
  first.run.model.vocab_size = 256;
  write("run/config.toml", config_toml(first));
  const ResolvedConfig c =
      resolve_config({"", flags({{"out_dir", "run"}, {"max_iters", "9"}}), /*resume=*/true});
  EXPECT_EQ(c.run.model.n_layer, 3);
  EXPECT_EQ(c.run.learning_rate, 0.5);
  EXPECT_EQ(c.run.out_dir, "run");
  EXPECT_TRUE(c.run.resume);
  EXPECT_EQ(c.source("learning_rate"), ConfigSource::saved);
  EXPECT_EQ(c.changes, (std::vector<std::string>{"max_iters 2000 -> 9", "warmup_iters 100 -> 0"}));

  EXPECT_EQ(
      message(ErrorKind::usage,
              [] {
                resolve_config(
                    {"", flags({{"out_dir", "run"}, {"n_layer", "4"}, {"bias", "true"}}), true});
              }),
      "resume: run holds another model: these keys differ (saved -> asked for):\n"
      "  n_layer 3 -> 4\n  bias false -> true\n"
      "remove them, or start a new run with another out_dir");
  EXPECT_EQ(message(ErrorKind::usage,
                    [] {
                      resolve_config({"", flags({{"out_dir", "run"}, {"init_from", "x"}}), true});
                    }),
            "resume and init_from: a run either goes on or starts from other weights; remove "
            "--resume or init_from");
  EXPECT_EQ(message(ErrorKind::file,
                    [] {
                      resolve_config({"", flags({{"out_dir", "nowhere"}}), true});
                    }),
            "nowhere/config.toml: missing: no run to resume there; name the run's directory with "
            "--out_dir, or start without --resume");
}

struct Refusal {
  const char* label;
  std::string toml;
  ErrorKind kind;
  std::string message;  // "..." at the end: the rest may differ
};

std::vector<Refusal> file_refusals() {
  using enum ErrorKind;
  const std::string deep(10'000, '[');
  std::string dotted = "a";
  for (int i = 0; i < 10'000; ++i) dotted += ".a";
  return {
      {"unknown", "learing_rate = 1e-3", usage,
       "t:1:1: learing_rate: no key has this name; did you mean learning_rate?"},
      {"unknown and far", "xyzzy = 1", usage,
       "t:1:1: xyzzy: no key has this name; see duet train --help"},
      {"key of 1 MB", std::string(1'000'000, 'k') + " = 1", usage, "t:1:1: kkkk..."},
      {"control characters", "\"a\\u001b[2Jb\" = 1", usage,
       "t:1:1: a\\x1b[2Jb: no key has this name; see duet train --help"},
      {"duplicate", "seed = 1\nseed = 2", file, "t:2:8: not TOML: ..."},
      {"duplicate in other spelling", "max_iters = 1\nmax-iters = 2", usage,
       "t:2:1: max-iters: named twice, also as t:1:1: max_iters"},
      {"table", "[model]\nn_layer = 2", usage,
       "t:1:2: [model]: got a table, expected key = value; the file is flat, without tables"},
      {"duplicate table", "[a]\n[a]\n", file, "t:2:1: not TOML: ..."},
      {"table of a key", "[seed]\nx = 2", usage,
       "t:1:2: seed: got a table, expected an integer in [0, 9223372036854775807]"},
      {"string for a number", "learning_rate = \"3e-4\"", usage,
       "t:1:1: learning_rate: got the string \"3e-4\", expected a number in [0, 1000]; write it "
       "without quotes"},
      {"number for a string", "data = 5", usage,
       "t:1:1: data: got 5, expected a path; write it in quotes"},
      {"1 for a boolean", "bias = 1", usage, "t:1:1: bias: got 1, expected true or false"},
      {"1.5 for an integer", "n_layer = 1.5", usage,
       "t:1:1: n_layer: got 1.5, expected an integer in [0, 10000]"},
      {"date", "seed = 2024-01-01", usage,
       "t:1:1: seed: got a date or time, expected an integer in [0, 9223372036854775807]"},
      {"2^63", "seed = 9223372036854775808", file, "t:1:27: not TOML: ..."},
      {"negative seed", "seed = -1", usage,
       "t:1:1: seed: got -1, expected an integer in [0, 9223372036854775807]"},
      {"1e400", "learning_rate = 1e400", file, "t:1:22: not TOML: ..."},
      {"nan", "learning_rate = nan", usage,
       "t:1:1: learning_rate: got nan, expected a number in [0, 1000]"},
      {"inf", "grad_clip = inf", usage,
       "t:1:1: grad_clip: got inf, expected a number in [0, 1e+09]"},
      {"negative rate", "learning_rate = -0.1", usage,
       "t:1:1: learning_rate: got -0.1, expected a number in [0, 1000]"},
      {"beta of 1", "beta1 = 1", usage, "t:1:1: beta1: got 1, expected a number in [0, 1)"},
      {"eps of 0", "adam_eps = 0", usage, "t:1:1: adam_eps: got 0, expected a number in (0, 1]"},
      {"negative clip", "grad_clip = -1", usage,
       "t:1:1: grad_clip: got -1, expected a number in [0, 1e+09]"},
      {"no heads", "n_head = 0", usage, "t:1:1: n_head: got 0, expected an integer in [1, 65536]"},
      {"negative size", "batch_size = -4", usage,
       "t:1:1: batch_size: got -4, expected an integer in [1, 1048576]"},
      {"1e9 layers", "n_layer = 1000000000", usage,
       "t:1:1: n_layer: got 1000000000, expected an integer in [0, 10000]"},
      {"heads do not divide", "n_embd = 100\nn_head = 3", usage,
       "n_embd: not a multiple of n_head: ..."},
      {"overflow of a step",
       "batch_size = 1048576\nblock_size = 1048576\ngradient_accumulation_steps = 65536", usage,
       "batch_size: too many tokens in a step: got batch_size 1048576 x block_size 1048576 x "
       "gradient_accumulation_steps 65536, expected a product of at most 1099511627776"},
      {"warm-up longer than the run", "warmup_iters = 11\nmax_iters = 10", usage,
       "warmup_iters: got 11, expected at most max_iters (10)"},
      {"min_lr above", "learning_rate = 0.1\nmin_lr = 0.2", usage,
       "min_lr: got 0.2, expected at most learning_rate (0.1)"},
      {"unknown type", "dtype = \"float33\"", usage,
       "t:1:1: dtype: got the string \"float33\", expected one of float32, bfloat16; did "
       "you mean float32?"},
      {"float16", "dtype = \"float16\"", usage,
       "t:1:1: dtype: float16 is not available: never trained in; use float32"},
      {"no size", "memory_limit = \"16Gib/s\"", usage,
       "t:1:1: memory_limit: got the string \"16Gib/s\", expected a size such as 16GiB, 900MiB, "
       "1.5GB or 2000000000 (bytes)"},
      {"nothing", "memory_limit = \"0GiB\"", usage,
       "t:1:1: memory_limit: got the string \"0GiB\", expected a size such as 16GiB, 900MiB, 1.5GB "
       "or 2000000000 (bytes)"},
      {"another GPU", "device = \"cuda:1\"", usage,
       "t:1:1: device: got \"cuda:1\", expected cuda or cuda:0: one GPU is supported, the first; "
       "..."},
      {"gpu", "device = \"gpu\"", usage,
       "t:1:1: device: got \"gpu\", expected one of auto, cpu, cuda; did you mean cuda?"},
      {"misspelt coupling", "coupling = \"symplectic\"", usage,
       "t:1:1: coupling: got the string \"symplectic\", expected one of none, euler, leapfrog, "
       "symplectic-euler, uncoupled, uncoupled-k, affine, hamiltonian-potential"},
      {"odd heads", "scoring = \"diff\"\nn_head = 1", usage,
       "n_head: scoring diff pairs the heads: got n_head 1, expected an even number; or use "
       "scoring diff-v2"},
      {"unknown scoring", "scoring = \"diff-v3\"", usage,
       "t:1:1: scoring: got the string \"diff-v3\", expected one of softmax, diff, diff_v2; did "
       "you mean diff_v2?"},
      {"mqar pairs", "task = \"mqar\"\nmqar_pairs = 17\nblock_size = 64", usage,
       "mqar_pairs: got 17, expected 1 to block_size / 4 (16)"},
      {"mqar length", "task = \"mqar\"\nblock_size = 63", usage,
       "block_size: got 63, expected an even number of 4 or more for task mqar"},
      {"mqar vocabulary", "task = \"mqar\"\nvocab_size = 64\nblock_size = 64", usage,
       "vocab_size: got 64, expected more than block_size (64) for task mqar"},
      {"mqar data", "task = \"mqar\"\ndata = \"x\"", usage,
       "data: got \"x\", expected none: task mqar makes its own examples; leave the key out"},
      {"resume in the file", "resume = true", usage,
       "t:1:1: resume: not a key of a file; pass --resume on the command line"},
      {"home", "out_dir = \"~/runs\"", usage,
       "out_dir: got \"~/runs\", expected a path; ~ is not expanded here, write the whole path"},
      {"no out_dir", "out_dir = \"\"", usage,
       "out_dir: got \"\", expected a path; name the directory of the run"},
      {"out_dir is the data", "out_dir = \"x\"\ndata = \"x\"", usage,
       "out_dir: got \"x\", the path of the data; choose another directory"},
      {"NUL in a path", "data = \"a\\u0000b\"", usage,
       "t:1:1: data: got \"a\\x00b\", expected text in UTF-8 without NUL; the run directory could "
       "not record it"},
      {"list of strings", "coupling_layers = [\"a\"]", usage,
       "t:1:1: coupling_layers: got a list with a value of another kind in it, expected a list of "
       "integers in [0, 9999]"},
      {"layer out of range", "coupling_layers = [-1]", usage,
       "t:1:1: coupling_layers: got -1 in the list, expected a list of integers in [0, 9999]"},
      {"unknown preset", "preset = \"huge\"", usage,
       "t:1:1: preset: got \"huge\", expected one of tiny, small, nano, 60m, 150m, 350m, 455m"},
      {"10,000 brackets", "seed = " + deep, file,
       "t:1: nested too deeply: a configuration is flat: key = value"},
      {"10,000 dots", dotted + " = 1", file,
       "t:1: nested too deeply: a configuration is flat: key = value"},
      {"10,000 tables", "[" + dotted + "]", file,
       "t:1: nested too deeply: a configuration is flat: key = value"},
      {"not closed", "data = \"abc", file, "t:1:..."},
      {"not UTF-8", "data = \"\xff\"", file, "t:1:..."},
      {"gzip", std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00", 8), file,
       "t: not a configuration: got a gzip file..."},
      {"NUL", std::string("a\0b = 1", 7), file, "t:1:..."},
  };
}

TEST_F(ConfigTest, HostileFilesAreRefusedWithAMessageAndLeaveNothing) {
  for (const Refusal& row : file_refusals()) {
    if (kCudaBuild && std::string_view(row.label) == "cuda") continue;
    SCOPED_TRACE(row.label);
    write("t", row.toml);
    const std::string got = message(row.kind, [] { resolve_config({"t", {}}); });
    std::string_view wanted = row.message;
    bool prefix = false;
    if (wanted.size() > 3 && wanted.substr(wanted.size() - 3) == "...") {
      wanted.remove_suffix(3);
      prefix = true;
    }
    if (const std::size_t gap = wanted.find("..."); gap != std::string_view::npos) {
      EXPECT_NE(got.find(wanted.substr(gap + 3)), std::string::npos) << got;
      wanted = wanted.substr(0, gap);
    }
    EXPECT_EQ(prefix ? got.substr(0, wanted.size()) : got, wanted) << got;
    EXPECT_LT(got.size(), 600U);
    for (const char c : got) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << got;
    EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()), 1);
  }
}

TEST_F(ConfigTest, FilesThatAreNoConfigurationAreNamed) {
  EXPECT_NE(message(ErrorKind::file,
                    [] {
                      resolve_config({"missing.toml", {}});
                    })
                .find("missing.toml"),
            std::string::npos);
  fs::create_directory("d");
  EXPECT_NE(message(ErrorKind::file,
                    [] {
                      resolve_config({"d", {}});
                    })
                .find("a directory"),
            std::string::npos);
  write("big", std::string(2U << 20, '#'));
  EXPECT_NE(message(ErrorKind::file,
                    [] {
                      resolve_config({"big", {}});
                    })
                .find("big"),
            std::string::npos);
  write("empty", "");
  EXPECT_EQ(resolve_config({"empty", {}}).run.max_iters, 2000);
  write("bom", "\xEF\xBB\xBFseed = 3\r\n# only a comment \x7e\r\n");
  EXPECT_EQ(resolve_config({"bom", {}}).run.seed, 3U);
}

// A bound holds for the number that is used: every key of floating point, at its bounds, around
// them, and where float32 has no more numbers.
TEST_F(ConfigTest, NumbersAreInRangeAsFloat32) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kBelow1 = 1 - 0x1p-24;  // the largest float32 below 1
  int keys = 0;
  for (const ConfigKey& key : config_keys()) {
    const auto* k = std::get_if<NumberKey>(&key.type);
    if (k == nullptr) continue;
    SCOPED_TRACE(key.name);
    ++keys;
    const auto taken = [&](double v) {
      RunConfig run;
      try {
        set_value(key, {std::string(key.name), v, "key"}, run);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        return false;
      }
      EXPECT_EQ(k->at(run), v);
      return true;
    };
    std::vector<double> values = {0,     1e-50,   5e-324,      kLeast,       kLeast / 2,
                                  1e-30, kBelow1, 1 - 0x1p-25, 0.9999999999, 1 - 0x1p-53,
                                  1e39,  1e300};
    for (const double bound : {k->min, k->max}) {
      for (const double towards : {-1e300, 1e300}) {
        values.insert(values.end(), {bound, std::nextafter(bound, towards)});
        const float narrow = std::nextafter(static_cast<float>(bound), static_cast<float>(towards));
        values.push_back(static_cast<double>(narrow));
      }
    }
    for (std::size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
    int in = 0;
    for (const double v : values) {
      // The meaning of the bounds, written once more.
      const auto used = std::abs(v) < 1e38 ? static_cast<double>(static_cast<float>(v)) : v;
      const auto inside = [&](double x) {
        return x >= k->min && x <= k->max && !(k->open_min && x == k->min) &&
               !(k->open_max && x == k->max);
      };
      const bool expected = inside(v) && inside(used) && (v == 0 || std::abs(used) >= kLeast);
      EXPECT_EQ(taken(v), expected) << v;
      in += expected ? 1 : 0;
    }
    EXPECT_GE(in, 4);
  }
  EXPECT_GE(keys, 9);
  const auto refused = [](const char* name, const char* value) {
    return message(ErrorKind::usage, [&] { resolve_config({"", flags({{name, value}})}); });
  };
  EXPECT_EQ(refused("adam_eps", "1e-50"),
            "--adam_eps: got \"1e-50\", expected a number in (0, 1]; float32, which trains, has no "
            "number that small: the smallest is 1.1754943508222875e-38");
  EXPECT_EQ(refused("grad_clip", "1e-40"),
            "--grad_clip: got \"1e-40\", expected a number in [0, 1e+09]; float32, which trains, "
            "has no number that small: the smallest is 1.1754943508222875e-38, beside 0");
  EXPECT_EQ(refused("beta2", "0.9999999999"),
            "--beta2: got \"0.9999999999\", expected a number in [0, 1); in float32, which trains, "
            "it is 1.0: the largest below is 0.9999999403953552");
  for (const auto& [name, value] : {std::pair("adam_eps", "1.1754943508222875e-38"),
                                    std::pair("beta2", "0.9999999403953552")}) {
    resolve_config({"", flags({{name, value}})});  // what the messages advise is taken
  }
}

TEST_F(ConfigTest, FlagsAreRefusedLikeFiles) {
  const auto refused = [](const char* key, const char* value) {
    return message(ErrorKind::usage, [&] { resolve_config({"", flags({{key, value}})}); });
  };
  EXPECT_EQ(refused("n_layer", "0x10"),
            "--n_layer: got \"0x10\", expected an integer in [0, 10000]");
  EXPECT_EQ(refused("n_layer", "1e3"), "--n_layer: got \"1e3\", expected an integer in [0, 10000]");
  EXPECT_EQ(refused("n_layer", ""), "--n_layer: got \"\", expected an integer in [0, 10000]");
  EXPECT_EQ(refused("learning_rate", "0,5"),
            "--learning_rate: got \"0,5\", expected a number in [0, 1000]");
  EXPECT_EQ(refused("learning_rate", "1e400"),
            "--learning_rate: got \"1e400\", expected a number in [0, 1000]");
  EXPECT_EQ(refused("bias", "maybe"), "--bias: got \"maybe\", expected true or false");
  EXPECT_EQ(refused("schedule", "cosin"),
            "--schedule: got \"cosin\", expected one of cosine, linear, constant, wsd; did you "
            "mean cosine?");
  EXPECT_EQ(refused("coupling_layers", "0,x"),
            "--coupling_layers: got \"0,x\", expected a list of integers in [0, 9999]");
  EXPECT_EQ(refused("data", "caf\xE9.txt"),
            "--data: got \"caf\\xe9.txt\", expected text in UTF-8 without NUL; the run directory "
            "could not record it");
}

TEST_F(ConfigTest, EveryKeyIsDocumentedAndDistinct) {
  const std::string help = config_help();
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(find_key(key.name), &key) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_NE(help.find(concat("--", key.name, " ")), std::string::npos) << key.name;
  }
}

}  // namespace
}  // namespace duet::test
