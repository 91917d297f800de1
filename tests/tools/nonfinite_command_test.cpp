// Weights that are not finite, on the command line: every command that reads them says so.
#include <cmath>
#include <limits>

#include "runtime/hash.h"
#include "runtime/safetensors.h"
#include "tests/tools/process.h"
#include "train/manifest.h"

namespace duet::test {
namespace {

class NonFiniteCommandTest : public CommandTest {
 protected:
  // Puts a NaN into a weight of the run's last checkpoint, whose hashes fit again.
  void spoil(const std::string& weight) {
    const std::string checkpoint = (directory_ / "run/checkpoints/step_00000030").string();
    const std::string path = checkpoint + "/model.safetensors";
    const auto file = SafetensorsFile::open(path);
    NamedTensors tensors;
    for (const std::string& name : file.names()) {
      Tensor t = file.load(name);
      if (name == weight) t.mutable_data<float>()[1] = -std::numeric_limits<float>::quiet_NaN();
      tensors.emplace_back(name, t);
    }
    const Metadata metadata = file.metadata();
    fs::remove(path);
    write_safetensors(path, tensors, metadata);
    Manifest manifest = read_manifest(checkpoint);
    for (auto& [name, entry] : manifest.files) {
      const std::string bytes = read_all(checkpoint + "/" + name);
      entry = {bytes.size(), hash_bytes(bytes)};
    }
    fs::remove(checkpoint + "/manifest.json");
    std::ofstream(checkpoint + "/manifest.json") << to_json(manifest);
  }
};

TEST_F(NonFiniteCommandTest, WeightsAreNamed) {
  ASSERT_EQ(duet(training("run")).code, 0);
  const std::vector<std::string> eval = {"eval", "--checkpoint", "run", "--data", "text.txt"};
  EXPECT_EQ(duet(eval).err, "");
  spoil("blocks.0.mlp.down_proj.weight");
  const std::string words =
      "blocks.0.mlp.down_proj.weight: 1 of 1024 elements is not finite, nan, at [0, 1]";
  std::vector<std::string> with_maps = eval;
  with_maps.insert(with_maps.end(), {"--diagnostics", "--sequences", "1"});
  const Ended bad = duet(with_maps);
  EXPECT_EQ(bad.code, 0);
  EXPECT_NE(bad.err.find(words), std::string::npos) << bad.err;
  EXPECT_NE(bad.out.find("loss           nan"), std::string::npos) << bad.out;
  EXPECT_EQ(bad.out.find("-nan"), std::string::npos) << bad.out;

  const Ended generate = duet({"generate", "--checkpoint", "run", "--prompt", "a"});
  EXPECT_EQ(generate.code, 4);
  EXPECT_NE(generate.err.find(words), std::string::npos) << generate.err;
  EXPECT_EQ(generate.err.find("-nan"), std::string::npos) << generate.err;

  const Ended inspect = duet({"inspect", "run"});
  EXPECT_EQ(inspect.code, 0);
  EXPECT_NE(inspect.out.find("1 of 1024 elements is not finite, nan, at [0, 1]\n"),
            std::string::npos)
      << inspect.out;

  // A new run is refused, as before.
  EXPECT_EQ(duet(training("other", {"--init_from", "run"})).code, 2);
}

}  // namespace
}  // namespace duet::test
