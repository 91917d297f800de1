#include "train/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <tuple>

#include "runtime/file_system.h"

namespace duet {
namespace {

// The whole of `digits` as a number.
std::optional<std::int64_t> parse_number(std::string_view digits) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  return whole && !digits.empty() && digits[0] != '-' ? std::optional(value) : std::nullopt;
}

// "step_00000200" or "step_00000200-2" -> (200, 1) or (200, 2)
std::optional<std::pair<std::int64_t, std::int64_t>> parse_name(std::string_view name) {
  const std::string_view prefix = kCheckpointPrefix;
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t dash = name.find('-');
  const auto step = parse_number(name.substr(0, dash));
  const auto repeat = dash == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                     : parse_number(name.substr(dash + 1));
  if (!step || !repeat) return std::nullopt;
  return std::pair(*step, *repeat);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  const std::size_t width = 8;
  return kCheckpointPrefix + std::string(width - std::min(width, digits.size()), '0') + digits;
}

std::vector<CheckpointCandidate> list_checkpoints(const std::string& directory) {
  std::vector<CheckpointCandidate> found;
  if (!file_system().is_directory(directory)) return found;
  for (const std::string& name : file_system().list_directory(directory)) {
    const auto numbers = parse_name(name);
    const std::string path = concat(directory, "/", name);
    if (!numbers || file_system().type(path) != FileType::directory) continue;
    CheckpointCandidate c{name, path, numbers->first, numbers->second, std::nullopt, nullptr};
    try {
      c.manifest = read_manifest(path);
      c.step = c.manifest->step;
    } catch (const Error&) {
      c.fault = std::current_exception();
    }
    found.push_back(std::move(c));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.step, a.repeat, a.name) > std::tie(b.step, b.repeat, b.name);
  });
  return found;
}

bool files_present(const CheckpointCandidate& candidate) {
  const auto& files = candidate.manifest->files;
  return std::all_of(files.begin(), files.end(), [&](const auto& entry) {
    const std::string path = concat(candidate.path, "/", entry.first);
    return file_system().type(path) == FileType::regular &&
           static_cast<std::uint64_t>(file_system().file_size(path)) == entry.second.bytes;
  });
}

}  // namespace duet
