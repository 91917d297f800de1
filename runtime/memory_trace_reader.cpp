// Reading memory traces, which may be malformed, and replaying them.
#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "runtime/error.h"
#include "runtime/memory_trace.h"
#include "runtime/printable.h"

namespace duet {
namespace {

constexpr std::int64_t kPiece = std::int64_t{256} << 10;  // of the file, read at once
constexpr std::size_t kLongestLine = 4096;
// What a run can hold at most; a file cannot make us hold more.
constexpr std::size_t kMostLive = std::size_t{1} << 20;
constexpr std::size_t kMostNames = std::size_t{1} << 16;      // scopes, ops
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;  // of a block
constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 62;

std::string shown(std::string_view word) {
  return word.empty() ? "the end of the line" : in_quotes(word);
}

}  // namespace

std::string_view MemoryTraceReader::Words::next() {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  return word;
}

MemoryTraceReader::MemoryTraceReader(const std::string& path) : file_(file_system().open(path)) {
  read_header();
}

void MemoryTraceReader::fail(std::string_view what, std::string_view got, std::string_view expected,
                             std::string_view advice) const {
  throw Error(ErrorKind::file, concat(printable(file_.path(), 400), ':', line_, ": ", what,
                                      ": got ", got, ", expected ", expected, "; ", advice));
}

// False at the end. A last line without its line feed was torn off in writing and is left out.
bool MemoryTraceReader::read_line(std::string_view& line) {
  while (true) {
    const std::size_t end = text_.find('\n', position_);
    if (end != std::string::npos && end - position_ <= kLongestLine) {
      line = std::string_view(text_).substr(position_, end - position_);
      if (line.ends_with('\r')) line.remove_suffix(1);
      position_ = end + 1;
      ++line_;
      return true;
    }
    if (end != std::string::npos || text_.size() - position_ > kLongestLine) {
      ++line_;
      fail("the line is too long", concat("more than ", kLongestLine, " bytes"),
           "a line of a memory trace");
    }
    const std::int64_t bytes = std::min(file_.size() - offset_, kPiece);
    if (bytes == 0) return false;
    text_.erase(0, position_);
    position_ = 0;
    const std::size_t before = text_.size();
    text_.resize(before + static_cast<std::size_t>(bytes));
    file_.read(offset_, text_.data() + before, bytes);
    offset_ += bytes;
  }
}

void MemoryTraceReader::read_header() {
  const std::string head = file_.head();
  line_ = 1;
  if (!head.starts_with(kTraceName)) {
    const auto magic = describe_magic(head);
    fail("this is no memory trace",
         head.empty() ? "an empty file"
         : magic      ? std::string(magic->what)
                      : in_quotes(head.substr(0, 40)),
         concat("a file that begins with ", in_quotes(kTraceHeader)),
         magic ? magic->advice : "give a file that --alloc_trace wrote");
  }
  line_ = 0;
  std::string_view line;
  if (!read_line(line) || !line.starts_with(kTraceHeader)) {
    line_ = 1;
    fail("the trace has another version or unit", shown(line), in_quotes(kTraceHeader),
         "record it again with this version of duet");
  }
  line.remove_prefix(kTraceHeader.size());
  if (line.empty()) return;
  if (!line.starts_with(kTraceLimit)) fail("the header goes on", shown(line), "its end or a limit");
  Words words{line.substr(kTraceLimit.size())};
  limit_ = number(words, "limit", kMostBytes);
  if (!words.rest.empty()) fail("the header goes on", shown(words.rest), "its end");
}

std::uint64_t MemoryTraceReader::number(Words& words, std::string_view what,
                                        std::uint64_t max) const {
  const std::string_view word = words.next();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc{} || end != word.data() + word.size() || value > max) {
    fail(what, shown(word), concat("a number from 0 to ", max));
  }
  return value;
}

ScopeId MemoryTraceReader::scope(Words& words) const {
  const std::uint64_t id = number(words, "scope", kMostNames);
  if (id >= scopes_.size()) {
    fail("scope", concat(id),
         concat("the number of a scope line above, at most ", scopes_.size() - 1));
  }
  return static_cast<ScopeId>(id);
}

MemoryKind MemoryTraceReader::kind(Words& words) const {
  const std::string_view word = words.next();
  const auto found = std::find(kTraceKinds.begin(), kTraceKinds.end(), word);
  if (found == kTraceKinds.end()) {
    fail("kind", shown(word), "temporary, parameters, gradients, optimizer or saved");
  }
  return static_cast<MemoryKind>(found - kTraceKinds.begin());
}

const char* MemoryTraceReader::op(Words& words) {
  if (words.rest.empty()) return nullptr;
  auto known = ops_.find(words.rest);
  if (known == ops_.end()) {
    if (ops_.size() == kMostNames) fail("op", "another name", concat(kMostNames, " names at most"));
    known = ops_.emplace(words.rest).first;
  }
  return known->c_str();
}

void MemoryTraceReader::read_scope(Words words) {
  const std::uint64_t id = number(words, "scope", kMostNames);
  if (id != scopes_.size()) {
    fail("scope", concat(id), concat("the next number, ", scopes_.size()));
  }
  if (words.rest.empty()) fail("scope", "no path", "a path like blocks.0.attn");
  scopes_.emplace_back(words.rest);
}

void MemoryTraceReader::read_end(Words words) {
  TraceFigures figures;
  figures.events = number(words, "end: events", kMostBlocks);
  figures.peak_allocated = number(words, "end: peak of live bytes", kMostBlocks);
  figures.peak_reserved = number(words, "end: peak of reserved bytes", kMostBlocks);
  if (!words.rest.empty()) fail("the line goes on", shown(words.rest), "its end");
  if (figures.events != events_) {
    fail("end: events", concat(figures.events), concat("the ", events_, " that the file holds"));
  }
  std::string_view more;
  if (read_line(more)) fail("a line after the end", shown(more), "the end of the file");
  recorded_ = figures;
}

MemoryEvent MemoryTraceReader::read_event(std::string_view type, Words words) {
  MemoryEvent event;
  const std::uint64_t block = number(words, "block", kMostBlocks);
  event.block = block;
  if (type == "alloc") {
    if (block <= newest_block_) {
      fail("alloc", concat("block ", block), concat("a number above ", newest_block_));
    }
    if (live_.size() == kMostLive) {
      fail("alloc", "another block", concat("at most ", kMostLive, " live blocks"));
    }
    newest_block_ = block;
    event.asked = number(words, "bytes asked for", kMostBytes);
    event.scope = scope(words);
    event.kind = kind(words);
    live_[block] = {event.asked, event.scope, event.kind};
  } else {
    const auto known = live_.find(block);
    if (known == live_.end()) {
      fail(type, concat("block ", block), "the number of a live block");
    }
    event.type = type == "free" ? MemoryEvent::Type::free : MemoryEvent::Type::mark;
    Live& live = known->second;
    if (event.type == MemoryEvent::Type::mark) {
      live.scope = scope(words);
      live.kind = kind(words);
    }
    event.asked = live.asked;
    event.scope = live.scope;
    event.kind = live.kind;
    if (event.type == MemoryEvent::Type::free) live_.erase(known);
  }
  event.op = op(words);
  ++events_;
  return event;
}

std::optional<MemoryEvent> MemoryTraceReader::next() {
  std::string_view line;
  while (!recorded_ && read_line(line)) {
    Words words{line};
    const std::string_view type = words.next();
    if (type == "alloc" || type == "free" || type == "mark") return read_event(type, words);
    if (type == "scope") {
      read_scope(words);
    } else if (type == "end") {
      read_end(words);
    } else {
      fail("the line is none of a memory trace", shown(line),
           "it to begin with alloc, free, mark, scope or end");
    }
  }
  return std::nullopt;
}

namespace {

void apply(MemoryReplayer& replayer, const MemoryTraceReader& trace, const MemoryEvent& event) {
  try {
    replayer.apply(event);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    trace.fail("alloc", concat("a request of ", event.asked, " bytes on top of the live ones"),
               trace.limit() != 0 ? concat("what fits the limit of ", trace.limit())
                                  : std::string("what fits into an address space"));
  }
}

}  // namespace

TraceReplay replay_trace(const std::string& path) {
  TraceReplay result;
  {
    MemoryTraceReader trace(path);
    MemoryReplayer replayer(trace.limit());
    while (const auto event = trace.next()) apply(replayer, trace, *event);
    result.figures = replayer.result();
    result.limit = trace.limit();
    result.recorded = trace.recorded();
  }
  // Where the peak is, shows only at the end.
  MemoryTraceReader trace(path);
  MemoryReplayer replayer(trace.limit());
  for (std::size_t i = 0; i <= result.figures.peak_event; ++i) {
    const auto event = trace.next();
    if (!event) break;  // an empty trace
    apply(replayer, trace, *event);
  }
  result.figures.map = replayer.map();
  std::map<std::pair<ScopeId, MemoryKind>, std::size_t> owners;
  for (const MemoryMapSegment& segment : result.figures.map) {
    for (const MemoryMapBlock& block : segment.blocks) {
      if (block.free) continue;
      const MemoryTraceReader::Live& live = trace.live().at(block.number);
      owners[{live.scope, live.kind}] += block.bytes;
    }
  }
  for (const auto& [owner, bytes] : owners) {
    result.owners.push_back({trace.scopes()[owner.first], bytes, owner.second});
  }
  std::stable_sort(result.owners.begin(), result.owners.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

}  // namespace duet
