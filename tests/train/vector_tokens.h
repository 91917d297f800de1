// Tokens in memory, for tests of what reads a TokenSource; and all of one as a vector.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "train/token_source.h"

namespace duet::test {

class VectorTokens final : public TokenSource {
 public:
  explicit VectorTokens(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}
  std::int64_t size() const override { return std::ssize(tokens_); }
  std::int64_t bytes() const override { return size(); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  std::int32_t operator[](std::int64_t i) const { return tokens_.at(static_cast<std::size_t>(i)); }

 private:
  std::vector<std::int32_t> tokens_;
};

inline std::vector<std::int32_t> all_tokens(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

}  // namespace duet::test
