// duet profile as a user calls it: what it refuses, and that its ways to the same figure agree.
#include <nlohmann/json.hpp>

#include "runtime/file_system.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class ProfileCommandTest : public CommandTest {
 protected:
  std::uint64_t peak_of(std::vector<std::string> arguments) {
    const std::string file = (directory_ / "figures.json").string();
    arguments.insert(arguments.begin(), {"profile", "--json", file, "--depth", "0"});
    const Ended ended = duet(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return nlohmann::json::parse(file_system().read_file(file, 1 << 24))["peak_bytes"];
  }
};

TEST_F(ProfileCommandTest, OneQuestionAtATime) {
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const Ended ended = duet(arguments);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  };
  refused({"profile", "--plan", "--fit", "1GiB"}, "got --fit and --plan");
  refused({"profile", "--replay", "a.trace", "--fit", "1GiB"}, "got --fit and --replay");
  refused({"profile", "--fit", "1GiB", "--html", (directory_ / "p.html").string()},
          "writes no such file");
  const std::string same = (directory_ / "same").string();
  refused({"profile", "--plan", "--json", same, "--html", same}, "the file of --json too");
  EXPECT_FALSE(file_system().exists(same));
}

TEST_F(ProfileCommandTest, APlanOfLabelledRowsIsWhatHappens) {
  const std::vector<std::string> mqar = {"--preset",     "tiny", "--task",       "mqar",
                                         "--vocab_size", "128",  "--block_size", "16",
                                         "--batch_size", "8",    "--mqar_pairs", "4"};
  std::vector<std::string> planned = mqar, measured = mqar;
  planned.emplace_back("--plan");
  measured.insert(measured.end(), {"--steps", "1", "--warmup", "0"});
  EXPECT_EQ(peak_of(planned), peak_of(measured));
  measured.insert(measured.begin(), {"profile", "--depth", "0"});
  EXPECT_NE(duet(measured).out.find(": 1 step measured\n"), std::string::npos);
}

TEST_F(ProfileCommandTest, APlanSaysWhereTheLimitIsExceeded) {
  const Ended ended =
      duet({"profile", "--plan", "--preset", "tiny", "--depth", "0", "--memory_limit", "2MiB"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("does not fit: "), std::string::npos) << ended.out;
}

}  // namespace
}  // namespace duet::test
