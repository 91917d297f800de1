#include "train/profile/scope_tree.h"

#include <memory>

namespace duet {
namespace {

struct Scope {
  std::string path;
  std::vector<std::unique_ptr<Scope>> inner;
  std::vector<ScopeId> ids;

  // The scope of `path`, made with those around it where they are new.
  Scope& at(const std::string& wanted) {
    if (wanted == path) return *this;
    const std::size_t begin = path.empty() ? 0 : path.size() + 1;
    const std::string child = wanted.substr(0, wanted.find('.', begin));
    for (const auto& scope : inner) {
      if (scope->path == child) return scope->at(wanted);
    }
    inner.push_back(std::make_unique<Scope>(Scope{child, {}, {}}));
    return inner.back()->at(wanted);
  }
};

void list(const Scope& scope, int depth, int parent, std::vector<ScopeTree::Row>& rows,
          std::map<ScopeId, int>& row_of) {
  const int row = static_cast<int>(rows.size());
  rows.push_back({scope.path, depth, parent});
  for (const ScopeId id : scope.ids) row_of[id] = row;
  for (const auto& inner : scope.inner) list(*inner, depth + 1, row, rows, row_of);
}

}  // namespace

ScopeTree::ScopeTree(const std::vector<ScopeId>& scopes) {
  Scope root;
  std::map<ScopeId, bool> seen;
  for (const ScopeId id : scopes) {
    if (seen.emplace(id, true).second) root.at(scope_path(id)).ids.push_back(id);
  }
  list(root, 0, -1, rows_, row_of_);
}

}  // namespace duet
