// Who allocates what, and for what: nested names that follow the parameters' dotted paths, and the
// kind of memory.
//
//   MemoryScope scope("attn");   // inside "blocks.3": blocks now belong to "blocks.3.attn"
//
// A scope is a small interned number, so a graph node can keep the scope of its forward and
// backward can re-enter it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace duet {

using ScopeId = std::uint32_t;  // 0 is the root, whose path is ""

enum class MemoryKind : std::uint8_t { temporary, parameters, gradients, optimizer, saved };
inline constexpr std::size_t kMemoryKinds = 5;
std::string_view name(MemoryKind kind);  // "saved for backward" for saved

MemoryKind current_memory_kind();  // of blocks made now; temporary unless a scope says otherwise

// Blocks are of this kind until the end of the C++ block.
class MemoryKindScope {
 public:
  explicit MemoryKindScope(MemoryKind kind);
  ~MemoryKindScope();
  MemoryKindScope(const MemoryKindScope&) = delete;
  MemoryKindScope& operator=(const MemoryKindScope&) = delete;

 private:
  MemoryKind previous_;
};

ScopeId current_scope();
std::string scope_path(ScopeId id);

// Hears how the thread that set it moves from scope to scope; null: nobody does.
class ScopeListener {
 public:
  ScopeListener() = default;
  ScopeListener(const ScopeListener&) = delete;
  ScopeListener& operator=(const ScopeListener&) = delete;
  virtual ~ScopeListener() = default;
  virtual void on_scope(ScopeId from, ScopeId to) noexcept = 0;
};
void set_scope_listener(ScopeListener* listener) noexcept;

// Enters a child of the current scope, or a scope given by id, until the end of the C++ block.
class MemoryScope {
 public:
  explicit MemoryScope(std::string_view name);
  explicit MemoryScope(ScopeId id);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  ScopeId previous_;
};

const char* current_op();  // the name of the op at work; null outside ops

// An op is at work until the end of the C++ block. `name` must live for ever.
class OpScope {
 public:
  explicit OpScope(const char* name);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  const char* previous_;
};

}  // namespace duet
