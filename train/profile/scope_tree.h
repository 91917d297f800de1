// ScopeTree: memory scopes as the rows of a tree.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/memory_scope.h"

namespace duet {

// Rows in pre-order, the root (path "") first; siblings in order of their first mention.
class ScopeTree {
 public:
  struct Row {
    std::string path;
    int depth = 0;
    int parent = -1;  // -1: the root
  };

  explicit ScopeTree(const std::vector<ScopeId>& scopes);  // those that are mentioned, in order
  const std::vector<Row>& rows() const { return rows_; }
  int row_of(ScopeId scope) const { return row_of_.at(scope); }

  // Calls f(row) for the scope's row and every row around it, inside out.
  template <class F>
  void for_each_around(ScopeId scope, F&& f) const {
    for (int r = row_of(scope); r >= 0; r = rows_[static_cast<std::size_t>(r)].parent) f(r);
  }

 private:
  std::vector<Row> rows_;
  std::map<ScopeId, int> row_of_;
};

}  // namespace duet
