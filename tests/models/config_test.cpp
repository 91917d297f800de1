// Configuration: presets, family defaults, the words of the enums, and every refusal's text.
#include "models/config.h"

#include <set>

#include "models/enum_names.h"
#include "models/flops.h"
#include "tests/models/model_helpers.h"

namespace duet::test {
namespace {

std::int64_t parameters(const ModelConfig& config) {
  Transformer model(config, DType::f32, kMeta);  // no memory is touched
  return count_parameters(model);
}

std::int64_t plain_parameters(std::string_view name) {
  ModelConfig c = preset(name, preset_family(name));
  c.coupling = CouplingKind::none;
  return parameters(c);
}

TEST(Config, PaperPresetsHaveThePapersParameterCounts) {
  EXPECT_EQ(plain_parameters("60m"), 59'294'720);
  EXPECT_EQ(plain_parameters("150m"), 151'862'784);
  EXPECT_EQ(plain_parameters("350m"), 355'076'096);
  EXPECT_EQ(plain_parameters("455m"), 454'166'528);
}

TEST(Config, TheDefaultCouplingAdds65536WeightsAtSixtyMillion) {
  const std::int64_t step_sizes = 8 * 8;  // one per layer and head
  EXPECT_EQ(parameters(preset("60m", Family::llama)), 59'294'720 + 65'536 + step_sizes);
  // The paper's count fits three designs; the other two have wide nets.
  for (const CouplingSharing sharing : {CouplingSharing::layer, CouplingSharing::model}) {
    ModelConfig c = preset("60m", Family::llama);
    c.coupling_sharing = sharing;
    c.coupling_hidden = 64;
    c.coupling_dt_mode = CouplingDtMode::fixed;
    EXPECT_EQ(parameters(c), 59'294'720 + 65'536) << enum_name(sharing);
  }
}

// The controls have as many parameters as what they control for; affine has its own count.
TEST(Config, EveryCouplingStatesItsParameters) {
  ModelConfig c = preset("60m", Family::llama);
  const std::int64_t heads = 8 * 8, f = 2 * 8 * 64;  // layers x heads; W1 and W2 of one head
  for (const std::int64_t kv_heads : {8, 2}) {
    c.n_kv_head = kv_heads;
    c.coupling = CouplingKind::none;
    const std::int64_t plain = parameters(c), nets = heads * kv_heads / 8;
    for (const CouplingKind kind : kCouplings) {
      c.coupling = kind;
      // Two nets with outputs s and t: (1 + 2) matrices each, and no dt.
      // A potential has one output.
      const std::int64_t each = kind == CouplingKind::affine                  ? 3 * f
                                : kind == CouplingKind::hamiltonian_potential ? f / 2 + 8 + 1
                                                                              : f + 1;
      EXPECT_EQ(parameters(c) - plain, nets * each) << enum_name(kind);
    }
  }
}

TEST(Config, SmallPresets) {
  EXPECT_EQ(preset_names(), (std::vector<std::string_view>{"tiny", "small", "nano", "60m", "150m",
                                                           "350m", "455m"}));
  const ModelConfig nano = preset("nano", preset_family("nano"));
  EXPECT_EQ(nano.family, Family::gpt2);
  EXPECT_EQ(nano.coupling, CouplingKind::none);
  EXPECT_TRUE(nano.bias);
  EXPECT_EQ(nano.activation, Activation::gelu_tanh);
  EXPECT_EQ(nano.n_embd, 128);
  EXPECT_EQ(nano.vocab_size, 256);
  const ModelConfig tiny = preset("tiny", preset_family("tiny"));
  EXPECT_EQ(tiny.family, Family::llama);
  EXPECT_EQ(tiny.coupling, CouplingKind::euler);
  EXPECT_FALSE(tiny.bias);
  EXPECT_EQ(tiny.ff_width(), 256);
  EXPECT_EQ(tiny.block_size, 64);
  // GPT-2 124M's count: 12 layers, 768 wide, 1,024 positions, head tied.
  ModelConfig gpt2 = family_defaults(Family::gpt2);
  gpt2.n_layer = gpt2.n_head = 12;
  gpt2.n_embd = 768;
  gpt2.block_size = 1024;
  gpt2.vocab_size = 50'257;
  EXPECT_EQ(parameters(gpt2), 124'439'808);
}

TEST(Config, UnknownPresetNamesTheKnownOnes) {
  EXPECT_EQ(message_of([] { preset_family("61m"); }, ErrorKind::usage),
            "preset: got \"61m\", expected one of tiny, small, nano, "
            "60m, 150m, 350m, 455m");
}

template <class E>
void expect_table_round_trips(const std::string& accepted) {
  std::set<std::string_view> words;
  for (const auto& [value, word] : kEnumNames<E>) {
    EXPECT_EQ(enum_name(value), word);
    EXPECT_EQ(enum_from_name<E>(word), value);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), kEnumNames<E>.size());
  EXPECT_EQ(accepted_names<E>(), accepted);
  EXPECT_EQ(enum_from_name<E>("nothing"), std::nullopt);
}

TEST(Config, EnumWords) {
  expect_table_round_trips<Family>("llama | gpt2");
  expect_table_round_trips<Activation>("swiglu | gelu | gelu_tanh");
  expect_table_round_trips<Scoring>("softmax | diff | diff_v2");
  expect_table_round_trips<CouplingKind>(
      "none | euler | leapfrog | symplectic-euler | uncoupled | uncoupled-k | affine | "
      "hamiltonian-potential");
  expect_table_round_trips<CouplingSharing>("head | layer | model");
  expect_table_round_trips<CouplingDtMode>("raw | softplus | fixed");
  expect_table_round_trips<CouplingRope>("before | after");
  expect_table_round_trips<RecomputeMode>("none | mlp | attn | block");
}

TEST(Config, EveryRefusalNamesKeyValueAndAcceptedForm) {
  struct Row {
    std::function<void(ModelConfig&)> change;
    std::string text;
  };
  const std::vector<Row> rows = {
      {[](auto& c) { c.n_head = 0; },
       "n_head: out of range: got 0, expected an integer from 1 to 65536"},
      {[](auto& c) { c.n_layer = -1; },
       "n_layer: out of range: got -1, expected an integer from 0 to 10000"},
      {[](auto& c) { c.n_layer = 1'000'000'000; },
       "n_layer: out of range: got 1000000000, expected an integer from 0 to 10000"},
      {[](auto& c) { c.n_embd = 0; },
       "n_embd: out of range: got 0, expected an integer from 1 to 1048576"},
      {[](auto& c) { c.n_head = 3; },
       "n_embd: not a multiple of n_head: got n_embd 64 and n_head 3; the nearest widths are 63 "
       "and 66"},
      {[](auto& c) { c.n_head = 4, c.n_kv_head = 3; },
       "n_kv_head: does not divide n_head: got n_kv_head 3 and n_head 4, expected a divisor of 4"},
      {[](auto& c) { c.n_kv_head = 4; },
       "n_kv_head: out of range: got 4, expected an integer from 0 to 2"},
      {[](auto& c) { c.n_embd = 6, c.n_head = 2; },
       "n_head: the head width n_embd / n_head must be even, because RoPE rotates pairs: got 6 / 2 "
       "= 3; change n_embd or n_head"},
      {[](auto& c) { c.d_ff = -4; },
       "d_ff: out of range: got -4, expected an integer from 0 to 16777216"},
      {[](auto& c) { c.block_size = 0; },
       "block_size: out of range: got 0, expected an integer from 1 to 16777216"},
      {[](auto& c) { c.vocab_size = 0; },
       "vocab_size: out of range: got 0, expected an integer from 1 to 2147483647"},
      {[](auto& c) { c.valid_vocab = 257; },
       "valid_vocab: out of range: got 257, expected an integer from 0 to 256"},
      {[](auto& c) { c.dropout = 1; }, "dropout: out of range: got 1, expected 0 <= dropout < 1"},
      {[](auto& c) { c.dropout = NAN; },
       "dropout: out of range: got nan, expected 0 <= dropout < 1"},
      {[](auto& c) { c.n_head = 1, c.scoring = Scoring::diff; },
       "n_head: scoring diff pairs the heads: got n_head 1, expected an even number; or use "
       "scoring diff-v2"},
      {[](auto& c) { c.n_kv_head = 1, c.scoring = Scoring::diff; },
       "n_kv_head: scoring diff pairs the key heads too: got n_kv_head 1, expected an even divisor "
       "of n_head 2; or use scoring diff-v2"},
      {[](auto& c) { c.coupling_steps = 0; },
       "coupling_steps: out of range: got 0, expected an integer from 1 to 64"},
      {[](auto& c) { c.coupling_hidden = 0; },
       "coupling_hidden: out of range: got 0, expected an integer from 1 to 65536"},
      {[](auto& c) { c.coupling_dt = INFINITY; },
       "coupling_dt: not finite: got inf, expected a number such as 0.1"},
      {[](auto& c) { c.coupling_dt = 0, c.coupling_dt_mode = CouplingDtMode::softplus; },
       "coupling_dt: softplus gives positive step sizes only: got 0, expected coupling_dt > 0; or "
       "use coupling_dt_mode raw"},
      {[](auto& c) { c.coupling_run_back = true; },
       "coupling_run_back: coupling euler is not inverted: got true, expected false, or coupling "
       "leapfrog, symplectic-euler or affine"},
      {[](auto& c) {
         c.coupling_run_back = true;
         c.coupling = CouplingKind::hamiltonian_potential;
       },
       "coupling_run_back: coupling hamiltonian-potential is not inverted: got true, expected "
       "false, or coupling leapfrog, symplectic-euler or affine"},
      {[](auto& c) {
         c.coupling_run_back = true;
         c.coupling = CouplingKind::uncoupled_k;
       },
       "coupling_run_back: coupling uncoupled-k is not inverted: got true, expected false, or "
       "coupling leapfrog, symplectic-euler or affine"},
      {[](auto& c) {
         c.coupling_layers = {0, 2};
       },
       "coupling_layers: no such layer: got 2, expected layers of 0 to 1 (n_layer is 2)"},
      {[](auto& c) {
         c.coupling_layers = {1, 1};
       },
       "coupling_layers: a layer is named twice: got 1, expected each layer once"},
  };
  for (const Row& row : rows) {
    ModelConfig c = preset("tiny", Family::llama);
    row.change(c);
    EXPECT_EQ(message_of([&] { validate(c); }, ErrorKind::usage), row.text);
    EXPECT_EQ(message_of([&] { Transformer model(c, DType::f32, kMeta); }, ErrorKind::usage),
              row.text);
  }
  for (const std::string_view name : preset_names()) {
    for (const Family family : {Family::llama, Family::gpt2}) validate(preset(name, family));
  }
  ModelConfig odd_width = preset("tiny", Family::gpt2);  // no rotation: odd heads are fine
  odd_width.n_embd = 6;
  validate(odd_width);
}

TEST(Config, FlopsAreThoseOfTheMatrixProducts) {
  ModelConfig c = preset("60m", Family::llama);
  c.coupling = CouplingKind::none;
  // Every weight but the norms is a factor of one multiply-add per token; the tied head once.
  const double weights = 59'294'720.0 - (2 * 8 + 1) * 512;
  const double scores = 8 * 2 * 512 * 256.5;  // 512 tokens see 1 to 512 keys
  EXPECT_DOUBLE_EQ(flops_per_token(c, 512), 6 * (weights + scores));
  ModelConfig coupled = preset("60m", Family::llama);
  coupled.coupling_steps = 3;
  EXPECT_DOUBLE_EQ(flops_per_token(coupled, 512) - flops_per_token(c, 512), 6.0 * 3 * 65'536);
  coupled.coupling_layers = {0};
  EXPECT_DOUBLE_EQ(flops_per_token(coupled, 512) - flops_per_token(c, 512), 6.0 * 3 * 8'192);
  // n = 3: f is evaluated three times, by leapfrog four; affine has three matrices in each of two
  // half-steps.
  for (const auto& [kind, evaluations] :
       std::map<CouplingKind, double>{{CouplingKind::leapfrog, 4.0},
                                      {CouplingKind::symplectic_euler, 3.0},
                                      {CouplingKind::uncoupled, 3.0},
                                      {CouplingKind::uncoupled_k, 3.0},
                                      {CouplingKind::affine, 9.0},
                                      // four forces: w1, w2 and back, of 64 columns and one
                                      {CouplingKind::hamiltonian_potential, 4.0 * 65 / 64}}) {
    coupled.coupling = kind;
    EXPECT_DOUBLE_EQ(flops_per_token(coupled, 512) - flops_per_token(c, 512),
                     6.0 * evaluations * 8'192)
        << enum_name(kind);
  }
}

}  // namespace
}  // namespace duet::test
