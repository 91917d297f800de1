#include "train/look.h"

#include <chrono>
#include <utility>

namespace duet {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Looks::Looks(double share, std::function<double()> clock)
    : share_(share), clock_(clock ? std::move(clock) : steady_seconds), since_(clock_()) {}

std::optional<Diagnostics> Looks::look(const Transformer& model, const Tensor& ids) {
  const double begin = clock_();
  left_ += share_ * (begin - since_);
  since_ = begin;
  if (left_ <= 0 || left_ < needs_) return std::nullopt;
  std::optional<Diagnostics> found = diagnose(model, ids, [&](double done) {
    needs_ = (clock_() - begin) / done;
    return done >= 1 || needs_ <= left_;
  });
  since_ = clock_();
  left_ -= since_ - begin;
  return found;
}

}  // namespace duet
