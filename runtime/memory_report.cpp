// Who holds memory, and what an out-of-memory error says about it.
#include <algorithm>
#include <cctype>
#include <map>

#include "runtime/caching_allocator.h"
#include "runtime/error.h"
#include "runtime/printable.h"

namespace duet {
namespace {

constexpr std::size_t kOwnersShown = 5;

void keep_largest(std::vector<MemoryOwner>& owners, std::size_t count) {
  std::stable_sort(owners.begin(), owners.end(),
                   [](const MemoryOwner& a, const MemoryOwner& b) { return a.bytes > b.bytes; });
  if (owners.size() > count) owners.resize(count);
}

std::vector<MemoryOwner> owners_of(const std::vector<std::size_t>& bytes_by_scope) {
  std::vector<MemoryOwner> owners;
  for (std::size_t id = 0; id < bytes_by_scope.size(); ++id) {
    if (bytes_by_scope[id] > 0) {
      owners.push_back({scope_path(static_cast<ScopeId>(id)), bytes_by_scope[id]});
    }
  }
  return owners;
}

// "blocks.3.attn" -> "blocks.*.attn": what matters is the kind of layer.
std::string without_indices(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size();) {
    const std::size_t end = std::min(path.find('.', i), path.size());
    const bool index = end > i && std::all_of(path.begin() + static_cast<std::ptrdiff_t>(i),
                                              path.begin() + static_cast<std::ptrdiff_t>(end),
                                              [](unsigned char c) { return std::isdigit(c); });
    out += index ? "*" : path.substr(i, end - i);
    if (end < path.size()) out += '.';
    i = end + 1;
  }
  return out;
}

std::string shown_path(const std::string& path) {
  return path.empty() ? "(outside any scope)" : printable(path);
}

const char* recompute_advice(const std::string& largest) {
  if (largest.find("attn") != std::string::npos) return "attn";
  return largest.find("mlp") != std::string::npos ? "mlp" : "block";
}

}  // namespace

std::vector<MemoryOwner> CachingAllocator::largest_owners(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryOwner> owners = owners_of(owners_);
  keep_largest(owners, count);
  return owners;
}

std::vector<MemoryOwner> CachingAllocator::peak_owners(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryOwner> owners = owners_of(at_peak_ ? owners_ : peak_owners_);
  keep_largest(owners, count);
  return owners;
}

void CachingAllocator::throw_out_of_memory(std::size_t bytes) const {
  std::string text = concat(name_, " out of memory: asked for ", format_bytes(bytes), " in ",
                            shown_path(scope_path(current_scope())), "; ");
  if (limit_ != 0) text += concat(format_bytes(limit_), " limit, ");
  if (const std::size_t total = source_->total_bytes(); total != 0) {
    text += concat(format_bytes(total), " total, ", format_bytes(source_->free_bytes()), " free, ");
  }
  text += concat(format_bytes(stats_.allocated), " live, ",
                 format_bytes(stats_.reserved - stats_.allocated), " cached in pieces of at most ",
                 format_bytes(std::max(small_.largest(), large_.largest())));
  std::map<std::string, std::size_t> kinds;
  for (const MemoryOwner& owner : owners_of(owners_)) {
    kinds[without_indices(owner.path)] += owner.bytes;
  }
  std::vector<MemoryOwner> largest;
  for (const auto& [path, held] : kinds) largest.push_back({path, held});
  keep_largest(largest, kOwnersShown);
  for (std::size_t i = 0; i < largest.size(); ++i) {
    text += concat(i == 0 ? ";\n  largest live scopes: " : ", ", shown_path(largest[i].path), ' ',
                   format_bytes(largest[i].bytes));
  }
  text += concat(";\n  try a smaller batch_size (gradient_accumulation_steps keeps the tokens per ",
                 "step), a smaller block_size, or --recompute ",
                 recompute_advice(largest.empty() ? "" : largest.front().path));
  throw Error(ErrorKind::memory, text);
}

}  // namespace duet
