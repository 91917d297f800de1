// The commands on the GPU, and where there is none that can be used.
#include <string>
#include <vector>

#include "tests/runtime/cuda_support.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The line of `text` that begins with `begin`, with one space between its words.
std::string words_of(const std::string& text, const std::string& begin) {
  const std::size_t at = text.find(begin) + 1;
  std::istringstream line(text.substr(at, text.find('\n', at) - at));
  std::string out;
  for (std::string word; line >> word;) out += word + " ";
  return out;
}

class DeviceCommand : public CommandTest {
 protected:
  std::vector<std::string> short_training(const std::string& device, const std::string& out_dir) {
    return training(out_dir, {"--device", device, "--max_iters", "4", "--eval_interval", "4",
                              "--diagnostics", "1"});
  }
};

TEST_F(DeviceCommand, TrainsEvaluatesAndGeneratesOnTheGpu) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Ended train = duet(short_training("cuda", "run"));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_TRUE(has(train.out, "| device       cuda:0 (")) << train.out;
  EXPECT_TRUE(has(train.out, "(chosen)")) << train.out;
  EXPECT_TRUE(has(read_all(directory_ / "run/env.json"), "\"device\": \"cuda:0")) << train.out;
  const auto loss_on = [&](const char* device) {
    const Ended eval = duet({"eval", "--checkpoint", "run", "--data", "text.txt", "--device",
                             device, "--diagnostics", "--sequences", "1"});
    EXPECT_EQ(eval.code, 0) << eval.err;
    const std::size_t at = eval.out.find("loss ");
    return std::stod(eval.out.substr(at + 5));
  };
  EXPECT_NEAR(loss_on("cuda"), loss_on("cpu"), 1e-3);
  const auto text_on = [&](const char* device) {
    const Ended ended = duet({"generate", "--checkpoint", "run", "--prompt", "Line ", "--device",
                              device, "--max_new_tokens", "4", "--temperature", "0"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_EQ(text_on("cuda"), text_on("cpu"));
}

TEST_F(DeviceCommand, TheFirstGpuHasANumber) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Ended train = duet(short_training("cuda:0", "run"));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_TRUE(has(read_all(directory_ / "run/config.toml"), "= \"cuda\" ")) << train.out;
  const Ended second = duet(short_training("cuda:1", "second"));
  EXPECT_EQ(second.code, 2);
  EXPECT_TRUE(has(second.err, "one GPU is supported")) << second.err;
}

TEST_F(DeviceCommand, AutoTakesTheGpu) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Ended train = duet(short_training("auto", "run"));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_TRUE(has(train.out, "(auto: it is usable)")) << train.out;
}

TEST_F(DeviceCommand, DoctorShowsAllOfIt) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Ended doctor = duet({"doctor"});
  EXPECT_EQ(doctor.code, 0) << doctor.err;
  for (const char* word :
       {"device     cuda:0 (", "CUDA       in this build: runtime 1", "kernels for",
        "driver     for CUDA 1", "GPU        ", "multiprocessors", "cublasLt   1"}) {
    EXPECT_TRUE(has(doctor.out, word)) << word << "\n" << doctor.out;
  }
}

TEST_F(DeviceCommand, OpCheckProvesOpsOnTheGpu) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Ended check = duet({"op", "check", "silu", "--device", "cuda", "--no-bench"});
  EXPECT_EQ(check.code, 0) << check.out << check.err;
  EXPECT_TRUE(has(check.out, "checks each on cuda")) << check.out;
  EXPECT_TRUE(has(check.out, "skipped on cuda: second order (needs f64)")) << check.out;
  const Ended list = duet({"op", "list"});
  EXPECT_TRUE(has(list.out, "dtypes (cuda)")) << list.out;
  // f64 has no kernels there; a view needs none.
  for (const char* line : {"\nsilu ", "\nmatmul ", "\nattention "}) {
    EXPECT_TRUE(has(words_of(list.out, line), " cpu cuda meta f32 f64 f32 yes ")) << list.out;
  }
  EXPECT_TRUE(has(words_of(list.out, "\ntranspose "),
                  " f32 f64 bf16 f16 i32 i64 u8 f32 f64 bf16 f16 i32 i64 u8 "))
      << list.out;
}

TEST_F(DeviceCommand, ProfilePrintsLaunches) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Ended profile =
      duet({"profile", "--preset", "tiny", "--n_layer", "1", "--n_embd", "16", "--block_size", "8",
            "--batch_size", "1", "--device", "cuda", "--steps", "1", "--warmup", "0"});
  EXPECT_EQ(profile.code, 0) << profile.err;
  EXPECT_TRUE(has(profile.out, "ms a step on cuda")) << profile.out;
  EXPECT_TRUE(has(profile.out, "launches of a step")) << profile.out;
}

TEST_F(DeviceCommand, BFloat16IsRefusedWithWhatIsMissing) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  std::vector<std::string> arguments = short_training("cuda", "run");
  arguments.insert(arguments.end(), {"--dtype", "bfloat16"});
  const Ended train = duet(arguments);
  EXPECT_EQ(train.code, 2);
  EXPECT_TRUE(has(train.err, "bfloat16 has no kernels on CUDA")) << train.err;
  EXPECT_FALSE(fs::exists(directory_ / "run"));
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(DeviceCommand, APlanNeedsNoGpuAndHolds) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const std::vector<std::string> profile = {
      "profile", "--device",     "cuda", "--preset",     "tiny",     "--n_layer",
      "1",       "--n_embd",     "16",   "--json",       "out.json", "--block_size",
      "8",       "--depth",      "0",    "--task",       "mqar",     "--vocab_size",
      "128",     "--mqar_pairs", "2",    "--batch_size", "3"};
  const auto peak = [&](const std::vector<std::string>& more, const ProcessOptions& options) {
    const Ended ended = duet(joined(profile, more), options);
    EXPECT_EQ(ended.code, 0) << ended.err;
    const std::string json = read_all(directory_ / "out.json");
    EXPECT_TRUE(has(json, "\"device\":\"cuda\"")) << json.substr(0, 100);
    const std::string key = "\"peak_bytes\":";
    return json.substr(json.find(key), json.find(',', json.find(key)) - json.find(key));
  };
  const ProcessOptions nothing{"", {}, {"DUET_SIM_DEVICES=0"}};
  EXPECT_EQ(peak({"--plan"}, nothing), peak({"--steps", "1", "--warmup", "0"}, {}));
  const Ended plan = duet(joined(profile, {"--plan"}), nothing);
  EXPECT_TRUE(has(plan.out, "planned for cuda, nothing was run")) << plan.out;
}

// Before anything is made, with what the op that has no kernels for it says.
TEST_F(DeviceCommand, HeadsTooWideForTheGpuAreRefusedAtTheStart) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const std::vector<std::string> wide = {"--coupling",   "none", "--n_head",     "1",
                                         "--n_embd",     "260",  "--n_layer",    "1",
                                         "--block_size", "8",    "--batch_size", "1"};
  const auto refused = [&](const std::vector<std::string>& command, const std::string& words) {
    const Ended ended = duet(joined(command, {"--device", "cuda"}));
    EXPECT_EQ(ended.code, 2) << command[0] << ": " << ended.out << ended.err;
    EXPECT_TRUE(has(ended.err, words)) << command[0] << ": " << ended.err;
  };
  const std::string attention =
      "error: attention: head width is too large for cuda: got 260, expected <= 256; use more "
      "heads, or --device cpu";
  const auto train_into = [&](const char* directory) {
    return joined({"train", "--data", "text.txt", "--out_dir", directory, "--max_iters", "1",
                   "--warmup_iters", "0", "--eval_iters", "1", "--diagnostics", "0"},
                  wide);
  };
  refused(train_into("refused"), attention);
  EXPECT_FALSE(fs::exists(directory_ / "refused"));
  refused(joined({"bench", "train", "--preset", "tiny"}, wide), attention);
  refused(joined({"profile", "--preset", "tiny"}, wide), attention);
  refused(joined({"profile", "--plan", "--preset", "tiny"}, wide), attention);
  refused(joined({"profile", "--fit", "1GiB", "--preset", "tiny"}, wide), attention);
  refused(joined(train_into("refused"), {"--n_embd", "132", "--coupling", "euler"}),
          "error: coupling_euler: head width is too large for cuda: got 132, expected <= 128");
  EXPECT_FALSE(fs::exists(directory_ / "refused"));

  const Ended train = duet(joined(train_into("run"), {"--device", "cpu"}));
  ASSERT_EQ(train.code, 0) << train.err;
  refused({"eval", "--checkpoint", "run", "--data", "text.txt"}, attention);
  refused({"generate", "--checkpoint", "run", "--prompt", "Line "}, attention);
}

#if DUET_SIM_CUDA
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

struct Missing {
  const char* name;
  std::vector<std::string> environment;
  std::vector<std::string> words;  // of the reason
};

void PrintTo(const Missing& missing, std::ostream* out) { *out << missing.name; }

class NoUsableGpu : public DeviceCommand, public testing::WithParamInterface<Missing> {};

TEST_P(NoUsableGpu, CudaIsRefusedAutoFallsBackAndTheCpuNeverAsks) {
  const ProcessOptions options{"", {}, GetParam().environment};
  const Ended refused = duet(short_training("cuda", "refused"), options);
  EXPECT_EQ(refused.code, 2) << refused.out << refused.err;
  EXPECT_FALSE(fs::exists(directory_ / "refused"));
  EXPECT_TRUE(has(refused.err, "this build for CUDA 13.")) << refused.err;
  EXPECT_TRUE(has(refused.err, "driver")) << refused.err;

  const Ended automatic = duet(short_training("auto", "auto"), options);
  EXPECT_EQ(automatic.code, 0) << automatic.err;
  EXPECT_EQ(first_line(automatic.out).rfind("device: cpu: auto: no usable GPU: ", 0), 0U)
      << automatic.out;
  EXPECT_TRUE(has(automatic.out, "| device       cpu (auto: no usable GPU: ")) << automatic.out;

  const Ended generated = duet(
      {"generate", "--checkpoint", "auto", "--prompt", "Line ", "--max_new_tokens", "1"}, options);
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_TRUE(has(generated.err, "note: device: cpu: auto: no usable GPU: ")) << generated.err;

  for (const char* command : {"bench", "profile"}) {
    std::vector<std::string> arguments{command};
    if (arguments[0] == "bench") arguments.emplace_back("train");
    arguments.insert(arguments.end(), {"--preset", "tiny", "--n_layer", "1", "--n_embd", "16",
                                       "--block_size", "8", "--batch_size", "1", "--steps", "1"});
    const Ended measured = duet(arguments, options);
    EXPECT_EQ(measured.code, 0) << measured.err;
    EXPECT_EQ(measured.err.rfind("note: device: cpu: auto: no usable GPU: ", 0), 0U)
        << measured.err;
  }

  const Ended doctor = duet({"doctor"}, options);
  EXPECT_EQ(doctor.code, 0) << doctor.err;
  EXPECT_TRUE(has(doctor.out, "device     cpu (auto: no usable GPU: ")) << doctor.out;
  for (const std::string& word : GetParam().words) {
    EXPECT_TRUE(has(refused.err, word)) << word << "\n" << refused.err;
    EXPECT_TRUE(has(first_line(automatic.out), word)) << word << "\n" << automatic.out;
    EXPECT_TRUE(has(doctor.out, word)) << word << "\n" << doctor.out;
  }

  const Ended cpu = duet(short_training("cpu", "cpu"), options);
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_TRUE(has(cpu.out, "| device       cpu (chosen)")) << cpu.out;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, NoUsableGpu,
    testing::Values(Missing{"no_gpu", {"DUET_SIM_DEVICES=0"}, {"no GPU"}},
                    Missing{"no_driver", {"DUET_SIM_DRIVER=none"}, {"install NVIDIA's driver"}},
                    Missing{"old_driver",
                            {"DUET_SIM_DRIVER=too_old"},
                            {"too old", "12.4", "CUDA 13", "update the driver"}},
                    Missing{"old_gpu",
                            {"DUET_SIM_ARCH=70"},
                            {"sm_70", "80", "90a", "too old for the toolkit", "CUDA 12"}},
                    Missing{
                        "no_cublaslt", {"DUET_CUBLASLT=/nowhere/libcublasLt.so"}, {"cublasLt"}}),
    [](const auto& of) { return of.param.name; });

// Each run is a process of its own: one message instead of one per run, and nothing written. What
// is finished needs no device.
TEST_F(DeviceCommand, AnExperimentIsRefusedOnce) {
  write("e.toml",
        "out_dir = \"lab\"\nseeds = [1, 2]\nn_layer = 1\nn_embd = 16\nn_head = 2\n"
        "block_size = 16\nbatch_size = 2\neval_iters = 2\nmax_iters = 2\neval_interval = 2\n"
        "diagnostics = 0\nthreads = 1\ndata = \"text.txt\"\n"
        "[[arm]]\nname = \"none\"\ncoupling = \"none\"\n"
        "[[arm]]\nname = \"euler\"\ncoupling = \"euler\"\n");
  const ProcessOptions no_gpu{"", {}, {"DUET_SIM_DEVICES=0"}};
  const std::vector<std::string> compare{"lab", "compare", "e.toml", "--device"};
  const auto on = [&](const char* device, const ProcessOptions& options,
                      const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = compare;
    arguments.emplace_back(device);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return duet(arguments, options);
  };
  const Ended refused = on("cuda", no_gpu);
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err.rfind("error: device: cuda is not usable: ", 0), 0U) << refused.err;
  const Ended bfloat16 = on("cuda", {}, {"--dtype", "bfloat16"});
  EXPECT_EQ(bfloat16.code, 2);
  EXPECT_TRUE(has(bfloat16.err, "bfloat16 has no kernels on CUDA")) << bfloat16.err;
  EXPECT_FALSE(fs::exists(directory_ / "lab"));
  const Ended automatic = on("auto", no_gpu);
  EXPECT_EQ(automatic.code, 0) << automatic.out << automatic.err;
  EXPECT_EQ(automatic.err.rfind("note: device: cpu: auto: no usable GPU: ", 0), 0U)
      << automatic.err;
  const Ended again = on("auto", no_gpu);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err, "");
}

// The weights fit beside the work space of products, and what comes then does not.
TEST_F(DeviceCommand, OutOfMemoryAdvisesEvalAndGenerate) {
  const Ended train = duet(training(
      "run", {"--device", "cpu", "--max_iters", "1", "--block_size", "512", "--diagnostics", "0"}));
  ASSERT_EQ(train.code, 0) << train.err;
  const auto out_of_memory = [&](std::vector<std::string> arguments, const char* memory) {
    arguments.insert(arguments.end(), {"--checkpoint", "run", "--device", "cuda"});
    Ended ended = duet(arguments, {"", {}, {std::string("DUET_SIM_MEMORY=") + memory}});
    EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
    EXPECT_EQ(ended.err.rfind("error: cuda:0 out of memory: ", 0), 0U) << ended.err;
    for (const char* word : {"gradient", "backward", "recompute", "n_layer"}) {
      EXPECT_FALSE(has(ended.err, word)) << word << " in: " << ended.err;
    }
    return ended;
  };
  constexpr const char *kNoWeights = "33564672", *kWeights = "33724432";
  const Ended eval = out_of_memory({"eval", "--data", "text.txt", "--batch_size", "8"}, kWeights);
  EXPECT_TRUE(has(eval.err, "try a smaller --batch_size (it is 8), or run with --device cpu"))
      << eval.err;
  const Ended loading = out_of_memory({"eval", "--data", "text.txt"}, kNoWeights);
  EXPECT_TRUE(has(loading.err, "the checkpoint's weights do not fit here")) << loading.err;
  const Ended text = out_of_memory({"generate", "--prompt", "Line 1"}, kWeights);
  EXPECT_TRUE(has(text.err, "try a shorter --prompt, or run with --device cpu")) << text.err;
  EXPECT_EQ(text.out, "Line 1\n");
}

TEST_F(DeviceCommand, NamesTheWorkSpaceOfProductsWhereItDoesNotFit) {
  const Ended train = duet(short_training("cuda", "run"), {"", {}, {"DUET_SIM_MEMORY=3000000"}});
  EXPECT_EQ(train.code, 3) << train.out << train.err;
  EXPECT_TRUE(has(train.err, "the work space of cublasLt does not fit: got 2929 KiB free"))
      << train.err;
  EXPECT_FALSE(fs::exists(directory_ / "run"));
}
#endif

}  // namespace
}  // namespace duet::test
