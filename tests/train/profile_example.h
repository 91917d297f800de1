// A profile made by hand, with names that try to break a page: what the tests of its forms share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "train/profile/profile.h"

namespace duet::test {

inline const std::string kHostile =
    "a</script><script>document.title='owned'</script><!-- \"&\n\u202e";

// Keeps the sums that a profile promises while blocks come and go.
class ProfileMaker {
 public:
  ProfileMaker() {
    p_.config.data = kHostile;
    p_.config.out_dir = kHostile;
    p_.steps = 3;
    p_.parameters = 1000;
    for (const std::string& path : {std::string(), std::string("blocks"), std::string("blocks.0"),
                                    "blocks.0." + kHostile, std::string("loss")}) {
      ProfileRow row;
      row.path = path;
      row.depth = path.empty() ? 0
                               : 1 + static_cast<int>(std::min<std::ptrdiff_t>(
                                         2, std::count(path.begin(), path.end(), '.')));
      p_.rows.push_back(row);
    }
  }

  // At `ms` a block of the row's comes (bytes > 0) or goes.
  void change(double ms, int row, MemoryKind kind, std::int64_t bytes, const char* op = nullptr) {
    MemoryPoint point = p_.points.empty() ? MemoryPoint{} : p_.points.back();
    const auto k = static_cast<std::size_t>(kind);
    own_.resize(p_.rows.size());
    own_[static_cast<std::size_t>(row)][k] += static_cast<std::uint64_t>(bytes);
    point.live[k] += static_cast<std::uint64_t>(bytes);
    point.ms = ms;
    point.reserved =
        std::max<std::uint64_t>(point.reserved, (total(point.live) + 4095) / 4096 * 4096);
    point.bytes = bytes;
    point.row = row;
    point.op = op;
    p_.points.push_back(point);
    if (total(point.live) <= p_.peak_bytes) return;
    p_.peak_bytes = total(point.live);
    p_.peak_reserved = point.reserved;
    p_.peak_point = p_.points.size() - 1;
    at_peak_ = own_;
  }
  void work(double begin, double end, int row, std::string_view phase) {
    p_.spans.push_back({begin, end, row, phase});
  }

  Profile finish() {
    MapSegment segment{p_.peak_reserved, {}};
    for (std::size_t r = p_.rows.size(); r-- > 0;) {
      ProfileRow& row = p_.rows[r];
      row.own_at_peak = at_peak_[r];
      std::size_t parent = r;
      while (parent > 0 && p_.rows[parent].depth >= row.depth) --parent;
      for (std::size_t k = 0; k < kMemoryKinds; ++k) {
        row.at_peak[k] += at_peak_[r][k];
        row.highest[k] = row.at_peak[k];
        if (r > 0) p_.rows[parent].at_peak[k] += row.at_peak[k];
        if (at_peak_[r][k] == 0) continue;
        const auto kind = static_cast<MemoryKind>(k);
        p_.owners.push_back({row.path, kind, at_peak_[r][k]});
        segment.blocks.push_back({at_peak_[r][k], false, kind, static_cast<int>(r), "an_op"});
      }
    }
    if (p_.peak_reserved > p_.peak_bytes) {
      segment.blocks.push_back(
          {p_.peak_reserved - p_.peak_bytes, true, MemoryKind::temporary, 0, nullptr});
    }
    p_.map = {segment};
    p_.unattributed = total(p_.rows[0].own_at_peak);
    p_.step_ms = p_.spans.empty() ? 0 : p_.spans.back().end_ms;
    if (!p_.planned) p_.process = ProcessMemory{1 << 20, 4 << 20, 1 << 19};
    return p_;
  }
  Profile& profile() { return p_; }

 private:
  Profile p_;
  std::vector<KindBytes> own_, at_peak_;
};

inline Profile example_profile(bool planned = false) {
  ProfileMaker make;
  make.profile().planned = planned;
  make.change(0, 3, MemoryKind::parameters, 4096);
  make.change(0.5, 3, MemoryKind::saved, 8192, "softmax");
  make.change(0.75, 2, MemoryKind::saved, 1024, "linear");
  make.change(1, 4, MemoryKind::temporary, 512, "sum");
  make.change(1.5, 3, MemoryKind::gradients, 4096, "softmax");
  make.change(1.5, 0, MemoryKind::temporary, 1536);
  make.change(2, 3, MemoryKind::saved, -8192);
  make.change(2.5, 2, MemoryKind::saved, -1024);
  if (!planned) {
    make.work(0, 0.25, 2, "forward");
    make.work(0.25, 0.6, 3, "forward");
    make.work(0.6, 0.8, 2, "forward");
    make.work(0.8, 1, 4, "forward");
    make.work(1, 1.75, 4, "backward");
    make.work(1.75, 2.2, 3, "backward");
    make.work(2.2, 2.5, 2, "backward");
    make.work(2.5, 2.6, 0, "update");
    make.work(2.6, 3, 4, "update");
  }
  return make.finish();
}

}  // namespace duet::test
