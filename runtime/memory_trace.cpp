// Writing memory traces.
#include "runtime/memory_trace.h"

#include <algorithm>
#include <charconv>

#include "runtime/error.h"
#include "runtime/printable.h"

namespace duet {
namespace {

constexpr std::size_t kBuffer = std::size_t{256} << 10;
constexpr std::size_t kLongestPath = 200;  // characters

// A slip in a path must not cost a corpus, and the path may come from a run of somebody else.
FileWriter open_trace(const std::string& path) {
  return file_system().overwrite(path, {{kTraceName}}, Links::refuse);
}

void append(std::string& line, std::uint64_t number) {
  std::array<char, 24> digits;
  const char* const begin = digits.data();
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  line += ' ';
  line.append(begin, end);
}

}  // namespace

MemoryTraceWriter::MemoryTraceWriter(const std::string& path, std::size_t limit)
    : file_(open_trace(path)) {
  text_.reserve(kBuffer);
  text_ += kTraceHeader;
  if (limit != 0) text_ += concat(kTraceLimit, limit);
  text_ += '\n';
  flush();
}

MemoryTraceWriter::~MemoryTraceWriter() {
  if (finished_ || error_) return;
  try {
    flush();
  } catch (...) {  // the run failed already: its own error is the one to tell
    finished_ = true;
  }
}

void MemoryTraceWriter::on_memory(const MemoryEvent& event) noexcept {
  if (error_ || finished_) return;
  try {
    add(event);
    if (text_.size() > kBuffer / 2) flush();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void MemoryTraceWriter::add(const MemoryEvent& event) {
  using enum MemoryEvent::Type;
  if (first_block_ == 0 && event.type == allocate) first_block_ = event.block;
  if (first_block_ == 0 || event.block < first_block_) return;
  const bool owned = event.type != free;
  if (owned) add_scope(event.scope);
  text_ += event.type == allocate ? "alloc" : event.type == free ? "free" : "mark";
  append(text_, event.block - first_block_ + 1);
  if (event.type == allocate) append(text_, event.asked);
  if (owned) {
    append(text_, event.scope == 0 ? 0 : scope_numbers_[event.scope]);
    (text_ += ' ') += kTraceKinds[static_cast<std::size_t>(event.kind)];
  }
  if (event.op != nullptr) (text_ += ' ') += event.op;
  text_ += '\n';
  ++figures_.events;
  if (event.type == allocate) live_ += event.bytes;
  if (event.type == free) live_ -= event.bytes;
  figures_.peak_allocated = std::max(figures_.peak_allocated, live_);
  figures_.peak_reserved = std::max<std::uint64_t>(figures_.peak_reserved, event.reserved);
}

void MemoryTraceWriter::add_scope(ScopeId scope) {
  if (scope == 0) return;
  if (scope >= scope_numbers_.size()) scope_numbers_.resize(scope + 1);
  if (scope_numbers_[scope] != 0) return;
  scope_numbers_[scope] = ++scopes_;
  text_ += "scope";
  append(text_, scopes_);
  (text_ += ' ') += printable(scope_path(scope), kLongestPath);
  text_ += '\n';
}

void MemoryTraceWriter::flush() {
  file_.write(text_);
  text_.clear();
}

void MemoryTraceWriter::finish() {
  if (finished_) return;
  finished_ = true;
  if (error_) std::rethrow_exception(error_);
  text_ += "end";
  append(text_, figures_.events);
  append(text_, figures_.peak_allocated);
  append(text_, figures_.peak_reserved);
  text_ += '\n';
  flush();
  file_.close();
}

}  // namespace duet
