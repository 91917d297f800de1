// The profile of a step: its rows sum to the allocator's peak, its plan is what happens, and what
// does not belong is named.
#include "train/profile/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/transformer.h"
#include "ops/ops.h"
#include "runtime/allocator.h"

namespace duet {
namespace {

RunConfig small_run() {
  RunConfig run;
  run.model = preset("tiny", Family::llama);
  run.model.coupling = CouplingKind::euler;
  run.batch_size = 2;
  run.device = "cpu";
  return run;
}

std::uint64_t sum_of_own(const Profile& profile) {
  std::uint64_t sum = 0;
  for (const ProfileRow& row : profile.rows) sum += total(row.own_at_peak);
  return sum;
}

const ProfileRow* find_row(const Profile& profile, const std::string& path) {
  const auto it = std::find_if(profile.rows.begin(), profile.rows.end(),
                               [&](const ProfileRow& row) { return row.path == path; });
  return it == profile.rows.end() ? nullptr : &*it;
}

TEST(Profile, RowsSumToTheAllocatorsPeak) {
  Allocator& memory = allocator(kCpu);
  memory.reset_peak();
  const std::uint64_t before = memory.stats().allocated;
  const Profile profile = measure_profile(small_run());
  EXPECT_EQ(profile.peak_bytes, memory.stats().peak_allocated - before);
  EXPECT_EQ(sum_of_own(profile), profile.peak_bytes);
  EXPECT_EQ(total(profile.rows[0].at_peak), profile.peak_bytes);
  std::uint64_t of_owners = 0;
  for (const PeakOwner& owner : profile.owners) of_owners += owner.bytes;
  EXPECT_EQ(of_owners, profile.peak_bytes);
  EXPECT_EQ(total(profile.points[profile.peak_point].live), profile.peak_bytes);
  EXPECT_EQ(profile.unattributed, 0U);
  EXPECT_TRUE(profile.grown.empty());
  std::uint64_t live = 0, segments = 0;
  for (const MapSegment& segment : profile.map) {
    segments += segment.bytes;
    for (const MapBlock& block : segment.blocks) live += block.free ? 0 : block.bytes;
  }
  EXPECT_EQ(live, profile.peak_bytes);
  EXPECT_LE(segments, profile.peak_reserved);
  EXPECT_EQ(memory.stats().allocated, before);
}

TEST(Profile, ALayerHoldsItsWeightsGradientsAndMoments) {
  const Profile profile = measure_profile(small_run());
  const ProfileRow* row = find_row(profile, "blocks.1.attn.coupling");
  ASSERT_NE(row, nullptr);
  const auto highest = [&](MemoryKind kind) {
    return row->highest[static_cast<std::size_t>(kind)];
  };
  EXPECT_GT(highest(MemoryKind::parameters), 0U);
  EXPECT_EQ(highest(MemoryKind::gradients), highest(MemoryKind::parameters));
  EXPECT_EQ(highest(MemoryKind::optimizer), 2 * highest(MemoryKind::parameters));
  // What the coupling saves, the product before it made: it belongs to the layer around.
  const ProfileRow* attn = find_row(profile, "blocks.1.attn");
  ASSERT_NE(attn, nullptr);
  EXPECT_GT(attn->highest[static_cast<std::size_t>(MemoryKind::saved)], 0U);
  EXPECT_GT(row->forward_ms, 0);
  EXPECT_GT(row->backward_ms, 0);
  const ProfileRow& whole = profile.rows[0];
  EXPECT_NEAR(whole.forward_ms + whole.backward_ms + whole.update_ms, profile.step_ms,
              0.2 * profile.step_ms);
}

TEST(Profile, APlanIsWhatHappens) {
  const RunConfig run = small_run();
  const Profile measured = measure_profile(run, {.warmup = 0, .steps = 1});
  const Profile planned = plan_profile(run);
  EXPECT_TRUE(planned.planned);
  EXPECT_FALSE(planned.process.has_value());
  EXPECT_EQ(planned.peak_bytes, measured.peak_bytes);
  ASSERT_EQ(planned.map.size(), measured.map.size());  // the same segments, whatever came before
  for (std::size_t s = 0; s < planned.map.size(); ++s) {
    EXPECT_EQ(planned.map[s].bytes, measured.map[s].bytes) << s;
  }
  ASSERT_EQ(planned.rows.size(), measured.rows.size());
  for (std::size_t r = 0; r < planned.rows.size(); ++r) {
    EXPECT_EQ(planned.rows[r].path, measured.rows[r].path);
    EXPECT_EQ(planned.rows[r].highest, measured.rows[r].highest) << planned.rows[r].path;
    EXPECT_EQ(planned.rows[r].at_peak, measured.rows[r].at_peak) << planned.rows[r].path;
  }
  ASSERT_EQ(planned.points.size(), measured.points.size());
}

TEST(Profile, AGraphThatIsKeptIsNamed) {
  std::vector<Tensor> kept;
  ProfileOptions options;
  options.hooks.after_backward = [&](std::int64_t, const std::vector<NamedTensor>& tensors) {
    const MemoryScope scope("blocks");
    const MemoryScope inner("forgotten");
    kept.push_back(sum(mul(*tensors[0].owner, *tensors[0].owner)));
  };
  const Profile profile = measure_profile(small_run(), options);
  ASSERT_FALSE(profile.grown.empty());
  for (const PeakOwner& owner : profile.grown) {
    EXPECT_TRUE(owner.path.starts_with("blocks.forgotten")) << owner.path;
  }
  EXPECT_NE(profile_text(profile, 3).find("LEAK"), std::string::npos);
}

TEST(Profile, BytesOutsideAnyScopeAreNamed) {
  Tensor stray;
  ProfileOptions options;
  options.hooks.on_phase = [&](StepPhase phase) {
    if (phase == StepPhase::forward) stray = Tensor::empty({1024}, DType::f32);
  };
  const Profile profile = measure_profile(small_run(), options);
  EXPECT_EQ(profile.unattributed, 4096U);
  EXPECT_EQ(sum_of_own(profile), profile.peak_bytes);
}

// Every model: nothing is left without an owner.
TEST(Profile, NothingIsUnattributed) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const CouplingKind coupling :
         {CouplingKind::none, CouplingKind::euler, CouplingKind::leapfrog, CouplingKind::affine}) {
      for (const RecomputeMode recompute :
           {RecomputeMode::none, RecomputeMode::mlp, RecomputeMode::attn, RecomputeMode::block}) {
        RunConfig run = small_run();
        run.model = preset("tiny", family);
        run.model.coupling = coupling;
        run.model.recompute = recompute;
        run.model.dropout = 0.1;
        run.gradient_accumulation_steps = 2;
        const Profile profile = plan_profile(run);
        EXPECT_EQ(profile.unattributed, 0U)
            << static_cast<int>(family) << ' ' << static_cast<int>(coupling) << ' '
            << static_cast<int>(recompute);
        EXPECT_EQ(sum_of_own(profile), profile.peak_bytes);
      }
    }
  }
}

TEST(Profile, JsonHoldsWhatTheTextSays) {
  const Profile profile = plan_profile(small_run());
  const auto json = nlohmann::json::parse(profile_json(profile));
  EXPECT_EQ(json["peak_bytes"], profile.peak_bytes);
  EXPECT_EQ(json["rows"].size(), profile.rows.size());
  EXPECT_EQ(json["points"].size(), profile.points.size());
  std::uint64_t sum = 0;
  for (const auto& row : json["rows"]) {
    for (const auto& bytes : row["own_at_peak"]) sum += bytes.get<std::uint64_t>();
  }
  EXPECT_EQ(sum, profile.peak_bytes);
}

}  // namespace
}  // namespace duet
