#include "runtime/memory_scope.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace duet {
namespace {

thread_local ScopeId current = 0;
thread_local MemoryKind current_kind = MemoryKind::temporary;
thread_local const char* op_at_work = nullptr;
thread_local ScopeListener* listener = nullptr;

ScopeId move_to(ScopeId scope) {
  const ScopeId from = std::exchange(current, scope);
  if (listener != nullptr) listener->on_scope(from, scope);
  return from;
}

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

std::string_view name(MemoryKind kind) {
  constexpr std::array<std::string_view, kMemoryKinds> kNames{
      "temporary", "parameters", "gradients", "optimizer", "saved for backward"};
  return kNames[static_cast<std::size_t>(kind)];
}

MemoryKind current_memory_kind() { return current_kind; }
MemoryKindScope::MemoryKindScope(MemoryKind kind) : previous_(std::exchange(current_kind, kind)) {}
MemoryKindScope::~MemoryKindScope() { current_kind = previous_; }

ScopeId current_scope() { return current; }

std::string scope_path(ScopeId id) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.paths.at(id);
}

MemoryScope::MemoryScope(std::string_view name)
    : previous_(move_to(registry().child(current, name))) {}
MemoryScope::MemoryScope(ScopeId id) : previous_(move_to(id)) {}
MemoryScope::~MemoryScope() { move_to(previous_); }

void set_scope_listener(ScopeListener* new_listener) noexcept { listener = new_listener; }

const char* current_op() { return op_at_work; }
OpScope::OpScope(const char* name) : previous_(std::exchange(op_at_work, name)) {}
OpScope::~OpScope() { op_at_work = previous_; }

}  // namespace duet
