// Memory traces: every event of an allocator in a text file, to be replayed through the policy.
//
//   duet memory trace, version 1, bytes     ", limit N" follows if `reserved` was capped
//   scope 1 blocks.0.attn                   a path gets a number when it is first seen; 0 is ""
//   alloc 7 262144 1 temporary matmul       block, bytes asked for, scope, kind, op if any
//   mark 7 1 saved matmul                   block, scope and kind from now on, op if any
//   free 7                                  block, op if any
//   end 3 262144 2097152                    events, peak of live bytes, of reserved ones
//
// Blocks count from 1 in the order of their lines, so equal runs give equal files.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/file_system.h"
#include "runtime/memory_events.h"
#include "runtime/memory_replay.h"

namespace duet {

inline constexpr std::string_view kTraceName = "duet memory trace, version ";
inline constexpr std::string_view kTraceHeader = "duet memory trace, version 1, bytes";
inline constexpr std::string_view kTraceLimit = ", limit ";
// The words of MemoryKind.
inline constexpr std::array<std::string_view, kMemoryKinds> kTraceKinds{
    "temporary", "parameters", "gradients", "optimizer", "saved"};

// What an allocator showed while it was recorded.
struct TraceFigures {
  std::uint64_t events = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
};

// Writes events to a file. Blocks made before the first event are left out.
class MemoryTraceWriter final : public MemoryListener {
 public:
  // Throws Error(io) if the file cannot be written, Error(usage) if it holds something else than a
  // trace.
  explicit MemoryTraceWriter(const std::string& path, std::size_t limit = 0);
  ~MemoryTraceWriter() override;  // writes what is left, but tells no error

  void on_memory(const MemoryEvent& event) noexcept override;
  // Writes the end. Throws Error(io) if a write failed, now or before.
  void finish();

 private:
  void add(const MemoryEvent& event);
  void add_scope(ScopeId scope);
  void flush();

  FileWriter file_;
  std::string text_;                          // not yet in the file
  std::vector<std::uint64_t> scope_numbers_;  // by ScopeId; 0: not seen yet
  std::uint64_t scopes_ = 0;
  std::uint64_t first_block_ = 0;  // 0: no event yet
  std::uint64_t live_ = 0;
  TraceFigures figures_;
  std::exception_ptr error_;  // the first; nothing is written after it
  bool finished_ = false;
};

// Records an allocator until the end of the C++ block, as its listener.
class AllocatorTrace {
 public:
  AllocatorTrace(const std::string& path, Allocator& memory)
      : memory_(memory), writer_(path, memory.limit()) {
    memory_.set_listener(&writer_);
  }
  ~AllocatorTrace() { memory_.set_listener(nullptr); }
  AllocatorTrace(const AllocatorTrace&) = delete;
  AllocatorTrace& operator=(const AllocatorTrace&) = delete;
  void finish() {  // see MemoryTraceWriter
    memory_.set_listener(nullptr);
    writer_.finish();
  }

 private:
  Allocator& memory_;
  MemoryTraceWriter writer_;
};

// Reads a trace event by event. Throws Error(file): "file:line: what: got ..., expected ...; what
// to do". A trace without its end, of a run that was killed, reads as far as its lines are whole.
class MemoryTraceReader {
 public:
  struct Live {
    std::size_t asked = 0;
    ScopeId scope = 0;
    MemoryKind kind = MemoryKind::temporary;
  };

  explicit MemoryTraceReader(const std::string& path);
  // The next event, or nothing at the end. Its scope is a number in scopes(), its op lives as long
  // as the reader, its `bytes` and `reserved` are 0: they are the policy's to say.
  std::optional<MemoryEvent> next();

  std::size_t limit() const { return limit_; }  // 0: none
  const std::vector<std::string>& scopes() const { return scopes_; }
  const std::unordered_map<std::uint64_t, Live>& live() const { return live_; }  // by block number
  // Of the end line, once next() was there; nothing if the trace was cut off.
  const std::optional<TraceFigures>& recorded() const { return recorded_; }
  // Throws Error(file) about the line read last.
  [[noreturn]] void fail(std::string_view what, std::string_view got, std::string_view expected,
                         std::string_view advice = "record the trace again") const;

 private:
  // The rest of a line, word by word.
  struct Words {
    std::string_view rest;
    std::string_view next();
  };
  bool read_line(std::string_view& line);
  void read_header();
  void read_scope(Words words);
  void read_end(Words words);
  MemoryEvent read_event(std::string_view type, Words words);
  std::uint64_t number(Words& words, std::string_view what, std::uint64_t max) const;
  ScopeId scope(Words& words) const;
  MemoryKind kind(Words& words) const;
  const char* op(Words& words);

  FileReader file_;
  std::int64_t offset_ = 0;  // of what follows `text_` in the file
  std::string text_;
  std::size_t position_ = 0;  // in `text_`
  std::uint64_t line_ = 0;
  std::size_t limit_ = 0;
  std::vector<std::string> scopes_{""};
  std::set<std::string, std::less<>> ops_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::uint64_t newest_block_ = 0;
  std::uint64_t events_ = 0;
  std::optional<TraceFigures> recorded_;
};

struct TraceReplay {
  MemoryReplay figures;  // with the map at the peak; block numbers are the trace's
  std::size_t limit = 0;
  std::vector<MemoryOwner> owners;       // at the peak, largest first
  std::optional<TraceFigures> recorded;  // nothing if the trace was cut off
};

// Reads the file twice and holds its live blocks only. Throws Error(file).
TraceReplay replay_trace(const std::string& path);

}  // namespace duet
