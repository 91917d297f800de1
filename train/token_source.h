// Tokens by position: the seam between what is trained or evaluated on and where its tokens lie.
#pragma once

#include <cstdint>
#include <span>

namespace duet {

class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  virtual std::int64_t size() const = 0;   // tokens
  virtual std::int64_t bytes() const = 0;  // of text behind them
  // The tokens from `begin` on, as many as `out` holds. Requires that there are so many. Throws
  // Error(file | io) where they cannot be read, or are no longer those that there were.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
};

}  // namespace duet
