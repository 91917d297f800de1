// duet bench train: the figures it writes fit each other.
#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

class BenchCommandTest : public CommandTest {};

TEST_F(BenchCommandTest, WritesFiguresThatFitEachOther) {
  const Ended ended = duet({"bench", "train", "--preset", "tiny", "--batch_size", "2", "--steps",
                            "5", "--against", "coupling=none", "--json", "bench.json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto json = nlohmann::json::parse(read_all(directory_ / "bench.json"));
  const double step_ms = json["step_ms"];
  EXPECT_GT(step_ms, 0);
  EXPECT_NEAR(json["tok_per_sec"].get<double>(), 2 * 64 / step_ms * 1e3,
              1e-6 * 2 * 64 / step_ms * 1e3);
  EXPECT_NEAR(json["floor_share"].get<double>(), json["floor_ms"].get<double>() / step_ms, 1e-9);
  EXPECT_LE(json["ratio_min"], json["ratio_median"]);
  EXPECT_LE(json["ratio_median"], json["ratio_max"]);
  EXPECT_NE(ended.out.find("coupling=none"), std::string::npos) << ended.out;
}

TEST_F(BenchCommandTest, WritesIntoALinkAndADeviceInPlace) {
  write("real.json", "");
  fs::create_symlink("real.json", directory_ / "link.json");
  for (const char* path : {"link.json", "/dev/null"}) {
    const Ended ended = duet({"bench", "train", "--preset", "tiny", "--batch_size", "1", "--steps",
                              "1", "--warmup", "0", "--json", path});
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
  EXPECT_TRUE(fs::is_symlink(directory_ / "link.json"));
  EXPECT_TRUE(nlohmann::json::accept(read_all(directory_ / "real.json")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(BenchCommandTest, TwoSteps) {
  const Ended ended = duet({"bench", "train", "--preset", "tiny", "--steps", "2", "--warmup", "0"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out.find("against"), std::string::npos) << ended.out;
}

}  // namespace
}  // namespace duet::test
