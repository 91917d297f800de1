// Who allocates what: nested names that follow the parameters' dotted paths.
//
//   MemoryScope scope("attn");   // inside "blocks.3": blocks now belong to "blocks.3.attn"
//
// A scope is a small interned number, so a graph node can keep the scope of its forward and
// backward can re-enter it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace duet {

using ScopeId = std::uint32_t;  // 0 is the root, whose path is ""

ScopeId current_scope();
std::string scope_path(ScopeId id);

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

}  // namespace duet
