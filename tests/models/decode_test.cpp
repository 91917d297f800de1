// Decoding: prefill and token by token give the logits of the whole sequence, and the end of the
// context is a message.
#include "models/enum_names.h"
#include "tests/models/model_helpers.h"

namespace duet::test {
namespace {

// Logits of `ids` fed to a cache in pieces of these lengths.
Tensor decode(const Transformer& model, const Tensor& ids,
              const std::vector<std::int64_t>& pieces) {
  KvCache cache = model.make_cache(ids.size(0));
  std::vector<Tensor> out;
  for (const std::int64_t n : pieces) {
    const Tensor part = clone(ids.slice_view(1, cache.length, cache.length + n));
    out.push_back(model.logits(part, cache));
  }
  EXPECT_EQ(cache.length, ids.size(1));
  const NoGradGuard no_grad;
  return cat(out, 1);
}

using Pieces = std::vector<std::int64_t>;

// All tokens at once, and cut into pieces: the same logits.
void expect_decodes_as_prefilled(const ModelConfig& c, std::int64_t tokens,
                                 const std::vector<Pieces>& cuts) {
  SCOPED_TRACE(concat(enum_name(c.family), ' ', enum_name(c.coupling), ' ', enum_name(c.scoring),
                      " steps ", c.coupling_steps, " kv heads ", c.kv_heads(), " rope ",
                      enum_name(c.coupling_rope)));
  Transformer model(c);
  model.initialize(1);
  perturb(model, 0.2);
  const Tensor ids = make_ids(3, tokens, 13);
  const NoGradGuard no_grad;
  const Tensor whole = model.logits(ids);
  ASSERT_GT(max_abs(whole), 0.1);
  for (const Pieces& pieces : cuts) {
    EXPECT_LT(max_difference(decode(model, ids, pieces), whole),
              1e-5 * std::max(1.0, max_abs(whole)))
        << pieces.size() << " pieces";
  }
}

TEST(Decode, PrefillEqualsStepByStep) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const std::int64_t steps : {0, 1, 3}) {
      for (const std::int64_t kv_heads : {4, 2, 1}) {
        for (const CouplingRope order : {CouplingRope::before, CouplingRope::after}) {
          ModelConfig c = micro(family, steps == 0 ? CouplingKind::none : CouplingKind::euler);
          c.block_size = 12;
          c.coupling_steps = std::max<std::int64_t>(steps, 1);
          c.n_kv_head = kv_heads;
          c.coupling_rope = order;
          expect_decodes_as_prefilled(c, 12, {{12}, Pieces(12, 1), {5, 1, 1, 4, 1}});
        }
      }
    }
  }
}

TEST(Decode, PrefillEqualsStepByStepInEveryScoring) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const Scoring scoring : {Scoring::diff, Scoring::diff_v2}) {
      for (const std::int64_t kv_heads : {4, 2}) {
        ModelConfig c = micro(family);
        c.scoring = scoring;
        c.n_kv_head = kv_heads;
        expect_decodes_as_prefilled(c, 8, {Pieces(8, 1), {3, 1, 4}});
      }
    }
  }
}

// The cache holds evolved keys, whatever evolved them.
TEST(Decode, PrefillEqualsStepByStepForEveryCoupling) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const CouplingKind kind : kCouplings) {
      for (const std::int64_t kv_heads : {4, 2}) {
        for (const CouplingRope order : {CouplingRope::before, CouplingRope::after}) {
          ModelConfig c = micro(family, kind);
          c.coupling_steps = 2;
          c.n_kv_head = kv_heads;
          c.coupling_rope = order;
          expect_decodes_as_prefilled(c, 8, {Pieces(8, 1), {5, 1, 2}});
        }
      }
    }
  }
}

// The cache must matter: without the first token the logits of later ones differ.
TEST(Decode, EarlierTokensAreSeen) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    Transformer model(micro(family));
    model.initialize(1);
    perturb(model, 0.2);
    const Tensor ids = make_ids(1, 4, 13);
    Tensor other = clone(ids);
    other.mutable_data<std::int32_t>()[0] = (other.data<std::int32_t>()[0] + 1) % 13;
    const Tensor a = decode(model, ids, {1, 3}), b = decode(model, other, {1, 3});
    EXPECT_GT(max_difference(a.slice_view(1, 3, 4), b.slice_view(1, 3, 4)), 1e-3);
  }
}

TEST(Decode, TheFutureIsNotSeen) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    Transformer model(micro(family));
    model.initialize(1);
    perturb(model, 0.2);
    const Tensor ids = make_ids(1, 8, 13);
    Tensor other = clone(ids);
    other.mutable_data<std::int32_t>()[7] = (other.data<std::int32_t>()[7] + 1) % 13;
    const NoGradGuard no_grad;
    const Tensor a = model.logits(ids), b = model.logits(other);
    EXPECT_LT(max_difference(a.slice_view(1, 0, 7), b.slice_view(1, 0, 7)), 1e-6);
    EXPECT_GT(max_difference(a.slice_view(1, 7, 8), b.slice_view(1, 7, 8)), 1e-3);
  }
}

TEST(Decode, AFullContextIsAMessageAndLeavesTheCacheAsItWas) {
  for (const std::int64_t prompt : {7, 8}) {
    Transformer model(micro(Family::llama));
    model.initialize(1);
    KvCache cache = model.make_cache(1);
    model.logits(make_ids(1, prompt, 13), cache, Positions::last);
    for (std::int64_t i = prompt; i < 8; ++i) model.logits(make_ids(1, 1, 13), cache);
    EXPECT_EQ(message_of([&] { model.logits(make_ids(1, 1, 13), cache); }, ErrorKind::usage),
              "generate: the context is full: got 8 tokens and 1 more, expected at most 8; ask for "
              "fewer new tokens, or slide the context");
    EXPECT_EQ(cache.length, 8);
  }
  Transformer model(micro(Family::gpt2));
  model.initialize(1);
  KvCache cache = model.make_cache(1);
  EXPECT_THROW(model.logits(make_ids(1, 9, 13), cache), Error);
  EXPECT_EQ(cache.length, 0);
  EXPECT_EQ(message_of([&] { model.logits(make_ids(2, 1, 13), cache); }, ErrorKind::shape),
            "transformer: the cache does not fit: got 2 layers for 1 sequences, expected 2 layers "
            "for 2; use make_cache()");
}

// C40: decoding and evaluation build no graph, so nothing grows.
TEST(Decode, KeepsNoGraph) {
  Transformer model(micro(Family::llama));
  model.initialize(1);
  KvCache cache = model.make_cache(1);
  const std::size_t before = saved_bytes();
  const Tensor logits = model.logits(make_ids(1, 4, 13), cache);
  EXPECT_FALSE(requires_grad(logits));
  EXPECT_EQ(saved_bytes(), before);
}

}  // namespace
}  // namespace duet::test
