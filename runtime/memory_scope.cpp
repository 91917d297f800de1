#include "runtime/memory_scope.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace duet {
namespace {

thread_local ScopeId current = 0;

// Every path ever entered. Grows with the number of distinct layer names, not with time.
struct Registry {
  std::mutex mutex;
  std::vector<std::string> paths{""};
  std::map<std::pair<ScopeId, std::string>, ScopeId, std::less<>> children;

  ScopeId child(ScopeId parent, std::string_view name) {
    const std::lock_guard lock(mutex);
    auto [entry, added] = children.try_emplace({parent, std::string(name)}, ScopeId{0});
    if (added) {
      entry->second = static_cast<ScopeId>(paths.size());
      const std::string& prefix = paths[parent];
      paths.push_back(prefix.empty() ? std::string(name) : prefix + "." + std::string(name));
    }
    return entry->second;
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

ScopeId current_scope() { return current; }

std::string scope_path(ScopeId id) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.paths.at(id);
}

MemoryScope::MemoryScope(std::string_view name)
    : previous_(std::exchange(current, registry().child(current, name))) {}
MemoryScope::MemoryScope(ScopeId id) : previous_(std::exchange(current, id)) {}
MemoryScope::~MemoryScope() { current = previous_; }

}  // namespace duet
