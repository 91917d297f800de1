// What a power cut may leave: every call on files is remembered, with what of it the disk holds for
// sure (what fsync was asked for) and what it may have lost.
//
//   RecordingDisk disk(root);  ... a run on it ...
//   DiskModel model = disk.begin();
//   for (const DiskEvent& e : disk.events()) {
//     model.apply(e);
//     model.each_state([&](const Files& files) { ... });  // had the power gone here
//   }
//
// The rules are POSIX's own, harder than any one file system: a file's bytes are on the disk after
// its fsync, its name after the fsync of its directory, a rename is atomic, and everything else
// comes in any order.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/system_calls.h"
#include "tests/runtime/same_text.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {

struct DiskEvent {
  enum class Kind : std::uint8_t { write, truncate, enter, leave, move, sync, mark };
  Kind kind = Kind::mark;
  int node = 0;                // written, truncated, synced, or the one that a name is given to
  std::int64_t at = 0;         // of a write; the size of a truncation; the number of a mark
  std::string bytes{};         // of a write
  int from = 0, to = 0;        // directories that lose and gain a name
  std::string name{}, gain{};  // lost (or entered), gained
  bool directory = false;      // entered
};

class DiskModel {
 public:
  // The files below `root`, all of them on the disk.
  explicit DiskModel(const std::string& root) {
    nodes_.push_back({true, "", {}});
    import(root, 0);
    synced_ = nodes_;
  }

  // The node that a path below the root names now; -1: none.
  int find(const std::filesystem::path& relative) const {
    int node = 0;
    for (const auto& part : relative) {
      if (part.empty() || part == ".") continue;
      const auto& names = nodes_[static_cast<std::size_t>(node)].names;
      const auto found = names.find(part.string());
      if (found == names.end()) return -1;
      node = found->second;
    }
    return node;
  }
  std::int64_t size(int node) const {
    return static_cast<std::int64_t>(nodes_[static_cast<std::size_t>(node)].bytes.size());
  }
  int next_node() const { return static_cast<int>(nodes_.size()); }

  void apply(const DiskEvent& e) {
    if (e.kind == DiskEvent::Kind::mark) return;
    if (e.kind == DiskEvent::Kind::sync) {
      std::erase_if(pending_, [&](const DiskEvent& p) {
        const bool data = p.kind == DiskEvent::Kind::write || p.kind == DiskEvent::Kind::truncate;
        const bool held = data ? p.node == e.node : p.from == e.node || p.to == e.node;
        if (held) change(synced_, p);
        return held;
      });
      return;
    }
    if (e.kind == DiskEvent::Kind::enter) {
      nodes_.push_back({e.directory, "", {}});
      synced_.push_back({e.directory, "", {}});
    }
    change(nodes_, e);
    pending_.push_back(e);
  }

  // Calls f(files, coarse) with every state of the files that a cut may leave now. Coarse: all that
  // is not synced kept, all of it lost, names without bytes, bytes without names, pages of zeros.
  // Fine: each piece lost or kept by itself, every beginning of it kept, and torn pages of 512 and
  // 4,096 bytes.
  void each_state(const std::function<void(const Files&, bool coarse)>& f) const {
    const std::size_t n = pending_.size();
    bool coarse = true;
    const auto with = [&](const std::function<std::optional<DiskEvent>(std::size_t)>& piece) {
      std::vector<Node> nodes = synced_;
      for (std::size_t i = 0; i < n; ++i) {
        if (const std::optional<DiskEvent> e = piece(i)) change(nodes, *e);
      }
      Files files;
      collect(nodes, 0, "", files);
      f(files, coarse);
    };
    const auto keep = [&](const std::function<bool(std::size_t)>& kept) {
      with([&](std::size_t i) { return kept(i) ? std::optional(pending_[i]) : std::nullopt; });
    };
    const auto is_data = [&](std::size_t i) {
      return pending_[i].kind == DiskEvent::Kind::write ||
             pending_[i].kind == DiskEvent::Kind::truncate;
    };
    keep([](std::size_t) { return true; });
    keep([](std::size_t) { return false; });
    keep([&](std::size_t i) { return is_data(i); });
    keep([&](std::size_t i) { return !is_data(i); });
    with([&](std::size_t i) {
      DiskEvent e = pending_[i];
      std::fill(e.bytes.begin(), e.bytes.end(), '\0');
      return std::optional(std::move(e));
    });
    coarse = false;
    for (std::size_t one = 0; one < n; ++one) {
      keep([&](std::size_t i) { return i != one; });
      keep([&](std::size_t i) { return i == one; });
      keep([&](std::size_t i) { return i < one; });
      if (pending_[one].kind != DiskEvent::Kind::write) continue;
      for (const std::size_t page : {std::size_t{512}, std::size_t{4096}}) {
        for (const bool front : {false, true}) {  // which side of the page's edge got lost
          with([&](std::size_t i) {
            DiskEvent e = pending_[i];
            if (i == one) tear(e, page, front);
            return std::optional(std::move(e));
          });
        }
      }
    }
  }

 private:
  struct Node {
    bool directory = false;
    std::string bytes;
    std::map<std::string, int> names;
  };

  // Loses one side of the last page boundary in the written range: cut off behind, zeros in front.
  static void tear(DiskEvent& e, std::size_t page, bool front) {
    const auto begin = static_cast<std::size_t>(e.at);
    const std::size_t end = begin + e.bytes.size();
    const std::size_t edge = std::max(begin, (end - 1) / page * page);
    if (front) {
      std::fill_n(e.bytes.begin(), static_cast<std::ptrdiff_t>(edge - begin), '\0');
    } else {
      e.bytes.resize(edge - begin);
    }
  }
  static void change(std::vector<Node>& nodes, const DiskEvent& e) {
    const auto node = [&](int i) -> Node& { return nodes[static_cast<std::size_t>(i)]; };
    switch (e.kind) {
      case DiskEvent::Kind::write: {
        std::string& bytes = node(e.node).bytes;
        const auto at = static_cast<std::size_t>(e.at);
        bytes.resize(std::max(bytes.size(), at + e.bytes.size()), '\0');
        bytes.replace(at, e.bytes.size(), e.bytes);
        break;
      }
      case DiskEvent::Kind::truncate:
        node(e.node).bytes.resize(static_cast<std::size_t>(e.at), '\0');
        break;
      case DiskEvent::Kind::enter:
        node(e.to).names[e.name] = e.node;
        break;
      case DiskEvent::Kind::leave:
        node(e.from).names.erase(e.name);
        break;
      case DiskEvent::Kind::move:
        // The name may point to another file by now, if what came in between is lost.
        if (const auto old = node(e.from).names.find(e.name);
            old != node(e.from).names.end() && old->second == e.node) {
          node(e.from).names.erase(old);
        }
        node(e.to).names[e.gain] = e.node;
        break;
      case DiskEvent::Kind::sync:
      case DiskEvent::Kind::mark:
        break;
    }
  }
  void import(const std::filesystem::path& directory, int node) {
    for (const auto& e : std::filesystem::directory_iterator(directory)) {
      const int child = next_node();
      nodes_.push_back({e.is_directory(), "", {}});
      nodes_[static_cast<std::size_t>(node)].names[e.path().filename().string()] = child;
      if (e.is_directory()) {
        import(e.path(), child);
      } else {
        nodes_[static_cast<std::size_t>(child)].bytes = read_bytes(e.path().string());
      }
    }
  }
  static void collect(const std::vector<Node>& nodes, int node, const std::string& prefix,
                      Files& files) {
    for (const auto& [name, child] : nodes[static_cast<std::size_t>(node)].names) {
      const Node& there = nodes[static_cast<std::size_t>(child)];
      files[prefix + name + (there.directory ? "/" : "")] = there.bytes;
      if (there.directory) collect(nodes, child, prefix + name + "/", files);
    }
  }

  std::vector<Node> nodes_, synced_;  // as programs see it; as the disk holds it for sure
  std::vector<DiskEvent> pending_;    // between the two, in order
};

// Makes a state of the files real, in an empty directory.
inline void write_files(const Files& files, const std::string& directory) {
  for (const auto& [path, bytes] : files) {
    if (path.back() == '/') {
      std::filesystem::create_directory(directory + "/" + path);
    } else {
      write_bytes(directory + "/" + path, bytes);
    }
  }
}

class RecordingDisk final : public SystemCalls {
 public:
  explicit RecordingDisk(const std::string& root)
      : root_(std::filesystem::canonical(root)), begin_(root), now_(begin_) {}

  const DiskModel& begin() const { return begin_; }
  const std::vector<DiskEvent>& events() const { return events_; }
  void mark(std::int64_t number) { record({.kind = DiskEvent::Kind::mark, .at = number}); }

  int openat(int directory, const char* path, int flags, mode_t permissions) override {
    const auto place = resolve(directory, path);
    const int before = place ? now_.find(*place) : -1;
    const int fd = SystemCalls::openat(directory, path, flags, permissions);
    if (fd < 0 || !place) return fd;
    if (before < 0 && (flags & O_CREAT) != 0) enter(*place, false);
    if (before >= 0 && (flags & O_TRUNC) != 0 && now_.size(before) > 0) {
      record({.kind = DiskEvent::Kind::truncate, .node = before});
    }
    return fd;
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    const int node = node_of(fd);
    const bool append = (::fcntl(fd, F_GETFL) & O_APPEND) != 0;
    const off_t at = append && node >= 0 ? now_.size(node) : ::lseek(fd, 0, SEEK_CUR);
    const ssize_t n = SystemCalls::write(fd, data, bytes);
    if (n > 0 && node >= 0) {
      record({.kind = DiskEvent::Kind::write,
              .node = node,
              .at = at,
              .bytes = std::string(static_cast<const char*>(data), static_cast<std::size_t>(n))});
    }
    return n;
  }
  int fsync(int fd) override {
    const int node = node_of(fd);
    if (node >= 0) record({.kind = DiskEvent::Kind::sync, .node = node});
    return 0;
  }
  int ftruncate(int fd, off_t size) override {
    const int node = node_of(fd);
    const int result = SystemCalls::ftruncate(fd, size);
    if (result == 0 && node >= 0) {
      record({.kind = DiskEvent::Kind::truncate, .node = node, .at = size});
    }
    return result;
  }
  int rename(int directory, const char* from, const char* to) override {
    const auto old_place = resolve(directory, from), new_place = resolve(directory, to);
    const int result = SystemCalls::rename(directory, from, to);
    if (result == 0 && old_place && new_place) {
      record({.kind = DiskEvent::Kind::move,
              .node = now_.find(*old_place),
              .from = now_.find(old_place->parent_path()),
              .to = now_.find(new_place->parent_path()),
              .name = old_place->filename().string(),
              .gain = new_place->filename().string()});
    }
    return result;
  }
  int mkdir(int directory, const char* path, mode_t permissions) override {
    const auto place = resolve(directory, path);
    const int result = SystemCalls::mkdir(directory, path, permissions);
    if (result == 0 && place) enter(*place, true);
    return result;
  }
  int unlinkat(int directory, const char* path, int flags) override {
    const auto place = resolve(directory, path);
    const int result = SystemCalls::unlinkat(directory, path, flags);
    if (result == 0 && place) {
      record({.kind = DiskEvent::Kind::leave,
              .from = now_.find(place->parent_path()),
              .to = -1,
              .name = place->filename().string()});
    }
    return result;
  }

 private:
  void record(DiskEvent e) {
    now_.apply(e);
    events_.push_back(std::move(e));
  }
  void enter(const std::filesystem::path& place, bool directory) {
    record({.kind = DiskEvent::Kind::enter,
            .node = now_.next_node(),
            .from = -1,
            .to = now_.find(place.parent_path()),
            .name = place.filename().string(),
            .directory = directory});
  }
  static std::filesystem::path path_of(int fd) {
    std::error_code gone;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), gone);
  }
  std::optional<std::filesystem::path> below_root(const std::filesystem::path& path) const {
    const auto relative = path.lexically_normal().lexically_relative(root_);
    if (relative.empty() || *relative.begin() == "..") return std::nullopt;
    return relative;
  }
  // A path as an operation names it, relative to the root; nothing: it is outside.
  std::optional<std::filesystem::path> resolve(int directory, const char* path) const {
    const auto base = directory == AT_FDCWD ? std::filesystem::current_path() : path_of(directory);
    return below_root(base / path);
  }
  int node_of(int fd) const {
    const auto place = below_root(path_of(fd));
    return place ? now_.find(*place) : -1;
  }

  std::filesystem::path root_;
  DiskModel begin_, now_;
  std::vector<DiskEvent> events_;
};

}  // namespace duet::test
