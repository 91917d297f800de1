#include "runtime/launch_count.h"

#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/memory_scope.h"

namespace duet {
namespace {

// Launches come from the main thread alone.
struct Counts {
  std::map<std::tuple<ScopeId, std::string_view, std::string_view>, std::size_t> rows;
  std::vector<LaunchCount> counts;
};

Counts& counts() {
  static Counts instance;
  return instance;
}

}  // namespace

void start_counting_launches() {
  counts() = {};
  counting_launches = true;
}

std::vector<LaunchCount> stop_counting_launches() {
  counting_launches = false;
  return std::exchange(counts(), {}).counts;
}

void count_launch(const char* kernel) {
  if (!counting_launches) return;
  const char* const op = op_called != nullptr ? op_called : current_op();
  const ScopeId scope = current_scope();
  const std::string_view name = op == nullptr ? "" : op;
  Counts& all = counts();
  const auto [row, added] = all.rows.try_emplace({scope, name, kernel}, all.counts.size());
  if (added) all.counts.push_back({scope_path(scope), std::string(name), kernel});
  LaunchCount& count = all.counts[row->second];
  ++count.launches;
  count.bytes += std::exchange(bytes_of_call, 0);
}

}  // namespace duet
