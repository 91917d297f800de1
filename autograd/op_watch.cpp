#include "autograd/op_watch.h"

namespace duet {

OpWatchScope::OpWatchScope(OpWatch& watch) : watch_(watch), outer_(detail::innermost_watch) {
  detail::innermost_watch = this;
}
OpWatchScope::~OpWatchScope() { detail::innermost_watch = outer_; }

bool OpWatchScope::ask() {
  const bool others = outer_ != nullptr && outer_->ask();
  wanted_ = watch_.wants_next();
  return wanted_ || others;
}

void OpWatchScope::show(const OpEvent& event) const {
  if (outer_ != nullptr) outer_->show(event);
  if (wanted_) watch_.on_op(event);
}

bool op_is_wanted() { return detail::innermost_watch->ask(); }
void show_op(const OpEvent& event) { detail::innermost_watch->show(event); }

}  // namespace duet
