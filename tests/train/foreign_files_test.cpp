// Files of a run that others wrote or changed: no nesting and no number in them ends in anything
// but an error that names the file, and a bad checkpoint never hides the good ones.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/hash.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/train/checkpoint_support.h"
#include "train/checkpoint_files.h"
#include "train/config_file.h"
#include "train/json_text.h"
#include "train/lab/experiment.h"
#include "train/lab/run_log.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace duet::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string nested(const std::string& open, std::size_t levels) {
  std::string out;
  for (std::size_t i = 0; i < levels; ++i) out += open;
  return out;
}

TEST(JsonText, NestsAsDeepAsItSays) {
  const auto list = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_EQ(parse_json(list(kDeepestJson), "f").dump(), list(kDeepestJson));
  EXPECT_TRUE(try_json(list(kDeepestJson)));
  for (const std::string& deep : {list(kDeepestJson + 1), std::string(150'000, '['), list(75'000),
                                  nested("{\"a\":", 75'000), nested("[{\"a\":", 40'000)}) {
    EXPECT_EQ(error_of(ErrorKind::file, [&] { parse_json(deep, "f"); }),
              "f: nested too deeply: got more levels of lists and objects, expected at most 64");
    EXPECT_FALSE(try_json(deep));
    EXPECT_FALSE(try_json<nlohmann::ordered_json>(deep));
  }
}

TEST(JsonText, TheTreeIsThatOfTheText) {
  const std::string text =
      R"({"b":[1,-2,2.5,1e-3,true,false,null,"x\u00e9"],"a":{"c":{}, "d":[]},"a":18446744073709551615})";
  EXPECT_EQ(parse_json(text, "f"), Json::parse(text));
  EXPECT_EQ(*try_json<nlohmann::ordered_json>(R"({"b":1,"a":[{"z":0,"y":1}]})"),
            nlohmann::ordered_json::parse(R"({"b":1,"a":[{"z":0,"y":1}]})"));
  EXPECT_EQ(try_json<nlohmann::ordered_json>(R"({"b":1,"a":2})")->dump(), R"({"b":1,"a":2})");
  for (const char* bad : {"", "[", "{\"a\":}", "[1] 2", "nul", "\"\xff\"", "1e999", "{\"a\" 1}"}) {
    EXPECT_FALSE(try_json(bad)) << bad;
    expect_in("f: not JSON: ", error_of(ErrorKind::file, [&] { parse_json(bad, "f"); }));
  }
}

// The keys of every number below `tree`, as JSON pointers.
void numbers(const Json& tree, const std::string& at, std::vector<std::string>& out) {
  if (tree.is_number()) out.push_back(at);
  if (!tree.is_structured()) return;
  for (const auto& [key, value] : tree.items()) numbers(value, at + "/" + key, out);
}

// Calls `read` with every number of the file replaced by numbers that no run writes there. It must
// refuse them, but for the keys named `free`.
template <class Read>
void expect_bounded(const std::string& text, const std::vector<std::string>& free, Read&& read) {
  const Json tree = Json::parse(text);
  std::vector<std::string> places;
  numbers(tree, "", places);
  ASSERT_GT(places.size(), 2U);
  for (const std::string& at : places) {
    if (std::find(free.begin(), free.end(), at) != free.end()) continue;
    const Json::json_pointer place(at);
    std::vector<Json> hostile = {Json(true), Json("1"), Json(-1e308)};
    if (tree[place].is_number_integer()) {
      hostile.insert(hostile.end(),
                     {Json(INT64_MAX), Json(UINT64_MAX), Json((std::int64_t{1} << 53) + 1),
                      Json(INT64_MIN), Json(1e300), Json(0.5)});
    }
    for (const Json& value : hostile) {
      SCOPED_TRACE(concat(at, " = ", value.dump()));
      Json changed = tree;
      changed[place] = value;
      EXPECT_NE(error_of(ErrorKind::file, [&] { read(changed); }), "");
    }
  }
}

TEST(ForeignFiles, EveryNumberOfAStateIsBounded) {
  TrainState state = state_at(6);
  state.best_step = 3;
  state.best_loss = 2.5;
  state.threads = 2;
  // best.loss and coupling_dt may be any number; the model's checks know the others of its numbers.
  expect_bounded(to_json(state), {"/seed", "/best/loss", "/model/coupling_dt"},
                 [](const Json& tree) { parse_state(tree.dump(), "state.json"); });
}

TEST(ForeignFiles, EveryNumberOfAManifestIsBounded) {
  const TempDirectory dir;
  const Manifest manifest{6, "0123456789ab", {{"state.json", {10, "00"}}, {"model", {20, "00"}}}};
  expect_bounded(to_json(manifest), {}, [&](Json tree) {
    tree.erase("xxh3");
    tree["xxh3"] = hash_bytes(tree.dump());
    write_bytes(dir.file("manifest.json"), tree.dump());
    read_manifest(dir.path());
  });
}

TEST(ForeignFiles, EveryNumberOfAnExperimentIsBounded) {
  const TempDirectory dir;
  ExperimentRecord record;
  record.directory = dir.path();
  record.seeds = {1, 2};
  record.arms = {{"a", "", 5, 10}, {"b", "", 5, 10}};
  record.files = {{"text", 100, "00"}};
  write_record(record);
  const std::string text = read_bytes(dir.file("experiment.json"));
  const auto read = [&](const Json& tree) {
    write_bytes(dir.file("experiment.json"), tree.dump());
    read_record(dir.path());
  };
  expect_bounded(text, {"/seeds/0", "/seeds/1"}, read);
  Json many = Json::parse(text);
  many["seeds"] = std::vector<int>(10'000, 1);
  expect_in("too many runs: got 2 arms x 10000 seeds, expected at most 10000",
            error_of(ErrorKind::file, [&] { read(many); }));
  many["seeds"] = {UINT64_MAX};
  expect_in("seeds", error_of(ErrorKind::file, [&] { read(many); }));
}

TEST(ForeignFiles, EveryNumberOfATokenizerIsBounded) {
  expect_bounded(parse_tokenizer(R"({"model":{"type":"mqar","vocab_size":64,"length":16,"pairs":4,
                                     "random_non_queries":true,"examples":100}})",
                                 "t")
                     ->json(),
                 {}, [](const Json& tree) { parse_tokenizer(tree.dump(), "t"); });
}

TEST(ForeignFiles, ALineOfALogWithAnImpossibleNumberIsLeftOut) {
  const TempDirectory dir;
  std::string text = "{\"step\":1,\"tokens\":10,\"time\":1.5}\n";
  for (const char* number : {"9223372036854775807", "18446744073709551615", "9007199254740993",
                             "-9223372036854775808", "-1", "2.5", "1e300", "[]"}) {
    text += concat("{\"step\":", number, ",\"tokens\":20,\"train/tok_per_sec\":1}\n");
    text += concat("{\"step\":3,\"tokens\":", number, ",\"train/tok_per_sec\":1}\n");
  }
  text += std::string(150'000, '[') + "\n{\"step\":4,\"tokens\":40,\"time\":2.5}\n";
  write_bytes(dir.file("metrics.jsonl"), text);
  const RunLog log = read_run_log(dir.path());
  ASSERT_EQ(log.points.size(), 2U);
  EXPECT_EQ(log.points[0].step, 1);
  EXPECT_EQ(log.points[1].step, 4);
}

TEST(ForeignFiles, ALogIsReadLineByLine) {
  const TempDirectory dir;
  std::string text;
  const auto line = [&](std::int64_t step, std::size_t blanks) {
    text += concat("{\"step\":", step, ",\"tokens\":1,", std::string(blanks, ' '), "\"time\":1}");
  };
  for (std::int64_t step = 1; step <= 20; ++step) {
    line(step, static_cast<std::size_t>(step) * 20'001);  // across the pieces in which it is read
    text += '\n';
  }
  line(21, 9 << 20);  // left out: no run writes such a line
  text += '\n';
  line(22, 3 << 20);
  text += "\n\n";
  line(23, 0);  // the last one, without its line feed
  write_bytes(dir.file("metrics.jsonl"), text);
  const RunLog log = read_run_log(dir.path());
  std::vector<std::int64_t> steps;
  for (const RunPoint& point : log.points) steps.push_back(point.step);
  std::vector<std::int64_t> wanted;
  for (std::int64_t step = 1; step <= 23; ++step) {
    if (step != 21) wanted.push_back(step);
  }
  EXPECT_EQ(steps, wanted);
  for (const char* short_text : {"", "\n", "\n\n", "x"}) {
    write_bytes(dir.file("metrics.jsonl"), short_text);
    EXPECT_TRUE(read_run_log(dir.path()).points.empty());
  }
}

TEST(ForeignFiles, AFileThatIsFarTooLongIsNotReadWhole) {
  const TempDirectory dir;
  const std::string run = dir.file("run");
  fs::create_directory(run);
  for (const char* name : {"env.json", "config.toml", "tokenizer.json"}) {
    const std::string path = concat(run, "/", name);
    write_bytes(path, "");
    fs::resize_file(path, std::uintmax_t{1} << 40);  // without blocks on the disk
    RunDirectory directory(run);
    expect_in(name, error_of(ErrorKind::file, [&] { directory.write(name, "x"); }));
    EXPECT_EQ(fs::file_size(path), std::uintmax_t{1} << 40);
    fs::remove(path);
  }
}

// Fills the directory of a checkpoint of step 9 with a fault.
struct BadStep {
  const char* name;
  const char* reason;
  std::function<void(const std::string& directory)> fill;
  const char* directory = "step_00000009";
};

void write_sealed(const std::string& directory, const std::string& state) {
  Manifest manifest{9, "0123456789ab", {}};
  write_bytes(directory + "/state.json", state);
  manifest.files["state.json"] = {state.size(), hash_bytes(state)};
  for (const char* name : {"model.safetensors", "optim.safetensors"}) {
    const std::string bytes = read_bytes(directory + "/../step_00000002/" + name);
    write_bytes(concat(directory, "/", name), bytes);
    manifest.files[name] = {bytes.size(), hash_bytes(bytes)};
  }
  write_bytes(directory + "/manifest.json", to_json(manifest));
}

std::vector<BadStep> bad_steps() {
  const auto manifest = [](std::string text) {
    return [text](const std::string& d) { write_bytes(d + "/manifest.json", text); };
  };
  const auto state = [](auto&& change) {
    return [change](const std::string& d) {
      Json tree = Json::parse(to_json(state_at(9)));
      change(tree);
      write_sealed(d, tree.dump());
    };
  };
  return {
      {"deep manifest", "nested too deeply", manifest(std::string(150'000, '['))},
      {"deep objects", "nested too deeply",
       manifest("{\"format\":\"duet-manifest\",\"format_version\":1,\"xxh3\":\"0\",\"x\":" +
                nested("{\"a\":", 75'000) + "1" + std::string(75'000, '}') + "}")},
      {"deep state", "nested too deeply",
       [](const std::string& d) {
         write_sealed(d, "{\"step\":" + std::string(75'000, '[') + std::string(75'000, ']') + "}");
       }},
      {"samples", "loader.samples: expected an integer",
       state([](Json& s) { s["loader"]["samples"] = INT64_MAX; })},
      {"tokens", "tokens: expected an integer", state([](Json& s) { s["tokens"] = INT64_MAX; })},
      {"step", "step: expected an integer", state([](Json& s) { s["step"] = INT64_MAX; })},
      {"seven bytes", "not JSON", manifest("{\"a\":\x01}")},
      {"not UTF-8", "not JSON", manifest("{\"format\":\"\xff\xfe\"}")},
      {"long manifest", "manifest.json", manifest(std::string(3 << 20, ' '))},
      {"a directory", "manifest.json",
       [](const std::string& d) { fs::create_directory(d + "/manifest.json"); }},
      {"a FIFO", "manifest.json",
       [](const std::string& d) { ASSERT_EQ(mkfifo((d + "/manifest.json").c_str(), 0600), 0); }},
      {"a loop of links", "manifest.json",
       [](const std::string& d) { fs::create_symlink("manifest.json", d + "/manifest.json"); }},
      {"nothing", "manifest.json", [](const std::string&) {}},
      {"highest step", "manifest.json", [](const std::string&) {}, "step_9223372036854775807"},
      {"highest repeat", "manifest.json", [](const std::string&) {},
       "step_00000002-9223372036854775807"},
  };
}

TEST(ForeignFiles, ABadStepNeverHidesTheGoodOnes) {
  const TempDirectory dir;
  Recorder quiet;
  CheckpointWriter writer = writer_for(dir, quiet);
  ToyRun run;
  run.save(writer, 1);
  run.save(writer, 2);
  for (const BadStep& bad : bad_steps()) {
    SCOPED_TRACE(bad.name);
    const std::string directory = concat(dir.file("run/checkpoints/"), bad.directory);
    fs::create_directory(directory);
    bad.fill(directory);
    Recorder reporter;
    const auto reader = CheckpointReader::open(dir.file("run"), reporter, true);
    EXPECT_EQ(reader.state().step, 2);
    expect_in(concat("checkpoint ", bad.directory, " is not usable: "), reporter.notices);
    expect_in(bad.reason, reporter.notices);
    EXPECT_EQ(reader.rejected(), std::vector<std::string>{bad.directory});
    // The run goes on beside it, and it stays as it is.
    CheckpointWriter next = writer_for(dir, reporter);
    next.ignore(reader.rejected());
    ToyRun later;
    fs::remove_all(later.save(next, 3));
    EXPECT_TRUE(fs::exists(directory));
    fs::remove_all(directory);
  }
}

TEST(ForeignFiles, DeepTomlIsAPlainError) {
  std::string dots = "a";
  for (int i = 0; i < 31'000; ++i) dots += ".a";
  const std::string fooled = "x = \"\"\"a\"\"\"\" # \"\"\"\"\n";
  std::string over_lines = "x = [";
  for (int i = 0; i < 8'000; ++i) over_lines += "{a.a.a.a.a.a.a.a = [\n";
  for (const auto& [text, line] :
       std::vector<std::pair<std::string, int>>{{fooled + dots + " = 1\n", 2},
                                                {fooled + "[" + dots + "]\n", 2},
                                                {fooled + "[[" + dots + "]]\n", 2},
                                                {"x = {" + dots + " = 1}\n", 1},
                                                {"\n\nx = " + std::string(50'000, '['), 3},
                                                {"x = " + nested("{a = ", 50'000), 1},
                                                {"x = " + nested("[{a = ", 50'000), 1},
                                                {over_lines, 2}}) {
    SCOPED_TRACE(text.substr(0, 40));
    for (const bool lab : {false, true}) {
      const std::string got = error_of(ErrorKind::file, [&, &toml = text] {
        lab ? static_cast<void>(parse_experiment(toml, "t"))
            : static_cast<void>(parse_config(toml, "t"));
      });
      EXPECT_EQ(got.substr(0, 4), concat("t:", line, ":")) << got;
      expect_in("nested too deeply: a configuration is flat: key = value", got);
    }
  }
}

TEST(ForeignFiles, EveryLetterOutsideOfAStringIsAPlainError) {
  const auto utf8 = [](unsigned c) {
    const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x800) return std::string{static_cast<char>(0xC0 | c >> 6), tail(0)};
    if (c < 0x10000) return std::string{static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
    return std::string{static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
  };
  std::size_t refused = 0;
  for (unsigned c = 0x80; c < 0x110000; c += c < 0x600 ? 1 : c < 0x3100 ? 7 : 977) {
    if (c >= 0xD800 && c < 0xE000) continue;
    for (const char* before :
         {"", "seed", "seed = ", "seed = 1", "seed = [1, ", "a.", "[", "a = {"}) {
      try {
        parse_config(before + utf8(c) + "\n", "t");
      } catch (const Error& e) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 10'000U);
}

TEST(ForeignFiles, DotsAndBracketsThatNestNothingAreTaken) {
  std::string text =
      "# " + std::string(80, '.') + "\ndata = \"\"\"../[[[[[[[[[[[[[[[[[[../a.b\"\"\"\n";
  for (int i = 0; i < 600; ++i) text += concat("# 0.", i, " [[[[[[[[\n");
  EXPECT_EQ(parse_config(text + "dropout = 0.1\n", "t").size(), 2U);
}

TEST(ForeignFiles, ARunLogIsFoundByStep) {
  RunLog log;
  for (std::int64_t step = 1; step <= 1000; ++step) {
    log.points.push_back({step * 3, step, 0, {}, {}, {}});
    if (step % 2 == 0) log.points.back().val["val/loss"] = 1;
  }
  EXPECT_EQ(log.evaluation(6), &log.points[1]);
  EXPECT_EQ(log.evaluation(3000), &log.points[999]);
  EXPECT_EQ(log.evaluation(3), nullptr);  // without an evaluation
  EXPECT_EQ(log.evaluation(7), nullptr);  // no such step
  EXPECT_EQ(log.evaluation(3001), nullptr);
  EXPECT_EQ(RunLog().evaluation(0), nullptr);
}

}  // namespace
}  // namespace duet::test
