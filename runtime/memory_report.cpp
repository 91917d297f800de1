// Who holds memory, and what an out-of-memory error says about it.
#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "runtime/caching_allocator.h"
#include "runtime/error.h"
#include "runtime/memory_advice.h"
#include "runtime/printable.h"

namespace duet {
namespace {

constexpr std::size_t kOwnersShown = 10;

void keep_largest(std::vector<MemoryOwner>& owners, std::size_t count) {
  std::stable_sort(owners.begin(), owners.end(),
                   [](const MemoryOwner& a, const MemoryOwner& b) { return a.bytes > b.bytes; });
  if (owners.size() > count) owners.resize(count);
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

// Live bytes of one kind of memory.
struct KindTotal {
  MemoryKind kind;
  std::size_t bytes = 0;
  std::size_t owners = 0;
};

// ";\n  saved for backward 24.0 MiB: blocks.*.attn 20.0 MiB, head 4.00 MiB" per kind, largest
// first.
std::string owner_lines(const std::vector<MemoryOwner>& owners) {
  std::vector<KindTotal> totals;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) totals.push_back({static_cast<MemoryKind>(k)});
  for (const MemoryOwner& owner : owners) {
    KindTotal& total = totals[static_cast<std::size_t>(owner.kind)];
    total.bytes += owner.bytes;
    ++total.owners;
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::vector<MemoryOwner> largest = owners;
  keep_largest(largest, kOwnersShown);
  std::string text;
  for (const KindTotal& total : totals) {
    if (total.bytes == 0) continue;
    text += concat(";\n  ", name(total.kind), ' ', format_bytes(total.bytes));
    std::size_t shown = 0;
    for (const MemoryOwner& owner : largest) {
      if (owner.kind != total.kind) continue;
      text += concat(shown++ == 0 ? ": " : ", ", shown_path(owner.path), ' ',
                     format_bytes(owner.bytes));
    }
    if (const std::size_t more = total.owners - shown; more > 0 && shown > 0) {
      text += concat(" and ", more, " more");
    }
  }
  return text;
}

// What holds most of the memory decides what helps.
std::string advice(const std::vector<MemoryOwner>& owners) {
  if (!memory_advice().empty()) return memory_advice();
  std::size_t of_model = 0, of_batch = 0;
  const MemoryOwner* largest = nullptr;  // of what depends on the batch
  for (const MemoryOwner& owner : owners) {
    const bool batch = owner.kind == MemoryKind::temporary || owner.kind == MemoryKind::saved;
    (batch ? of_batch : of_model) += owner.bytes;
    if (batch && (largest == nullptr || owner.bytes > largest->bytes)) largest = &owner;
  }
  if (of_model > of_batch) {
    return "try a smaller model (n_layer, n_embd): its weights, gradients and moments hold most";
  }
  const std::string path = largest == nullptr ? "" : largest->path;
  const char* recompute = path.find("attn") != std::string::npos  ? "attn"
                          : path.find("mlp") != std::string::npos ? "mlp"
                                                                  : "block";
  return concat(
      "try a smaller batch_size (gradient_accumulation_steps keeps the tokens per step), ",
      "a smaller block_size, or --recompute ", recompute);
}

}  // namespace

std::vector<MemoryOwner> CachingAllocator::list(const Owners& all) {
  std::vector<MemoryOwner> owners;
  for (std::size_t id = 0; id < all.size(); ++id) {
    for (std::size_t k = 0; k < kMemoryKinds; ++k) {
      if (all[id][k] == 0) continue;
      owners.push_back(
          {scope_path(static_cast<ScopeId>(id)), all[id][k], static_cast<MemoryKind>(k)});
    }
  }
  return owners;
}

std::vector<MemoryOwner> CachingAllocator::largest_owners(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryOwner> owners = list(owners_);
  keep_largest(owners, count);
  return owners;
}

std::vector<MemoryOwner> CachingAllocator::peak_owners(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryOwner> owners = list(at_peak_ ? owners_ : peak_owners_);
  keep_largest(owners, count);
  return owners;
}

void CachingAllocator::throw_out_of_memory(std::size_t bytes) const {
  std::string text = concat(name_, " out of memory: asked for ", format_bytes(bytes), " in ",
                            shown_path(scope_path(current_scope())));
  if (current_op() != nullptr) text += concat(", op ", current_op());
  text += "; ";
  if (limit_ != 0) text += concat(format_bytes(limit_), " limit, ");
  if (live_limit_ != 0) text += concat(format_bytes(live_limit_), " limit of live bytes, ");
  if (const SourceLimit limit = source_->limit(); limit.total != 0) {
    text += concat(format_bytes(limit.total), ' ', limit.name, ", ", format_bytes(limit.free),
                   " of it free, ");
  }
  text += concat(format_bytes(stats_.allocated), " live, ",
                 format_bytes(stats_.reserved - stats_.allocated), " cached in pieces of at most ",
                 format_bytes(std::max(small_.largest(), large_.largest())));
  std::map<std::pair<std::string, MemoryKind>, std::size_t> kinds;
  for (const MemoryOwner& owner : list(owners_)) {
    // Without a graph, what an op saves for backward goes when the op ends.
    const bool passing = owner.kind == MemoryKind::saved && !memory_advice().empty();
    const MemoryKind kind = passing ? MemoryKind::temporary : owner.kind;
    kinds[{without_indices(owner.path), kind}] += owner.bytes;
  }
  std::vector<MemoryOwner> owners;
  for (const auto& [key, held] : kinds) owners.push_back({key.first, held, key.second});
  throw Error(ErrorKind::memory, concat(text, owner_lines(owners), ";\n  ", advice(owners)));
}

}  // namespace duet
