#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/printable.h"

namespace duet {
namespace {

// std::from_chars over the whole text.
template <class T>
std::optional<T> parse_all(std::string_view text) {
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_all<std::int64_t>(text);
}

std::optional<double> parse_number(std::string_view text) { return parse_all<double>(text); }

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::string_view kPrefixes = "kmgtp";
  static constexpr double kMost = 1.2e15;  // a pebibyte: more than any machine has
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<double> number = parse_all<double>(text.substr(0, digits));
  text.remove_prefix(std::min(text.find_first_not_of(' ', digits), text.size()));
  std::string unit;
  for (const char c : text) unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  double scale = 1;
  if (unit.size() >= 2 && unit != "b") {
    const std::size_t power = kPrefixes.find(unit.front());
    const bool binary = unit.substr(1) == "ib";
    if (power == std::string_view::npos || !(binary || unit.substr(1) == "b")) return std::nullopt;
    scale = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  } else if (!unit.empty() && unit != "b") {
    return std::nullopt;
  }
  if (!number) return std::nullopt;
  const double bytes = std::floor(*number * scale);
  if (!(bytes >= 1 && bytes <= kMost)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::string format_number(double value) {
  std::string text = fmt::format("{}", value);
  // "1" is an integer in TOML; "1e-08", "inf" and "nan" need no point.
  if (text.find_first_of(".eni") == std::string::npos) text += ".0";
  return text;
}

std::string format_count(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::int64_t first = value < 0 ? 1 : 0;
  for (auto i = static_cast<std::int64_t>(digits.size()) - 3; i > first; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return digits;
}

std::string plural(std::int64_t n, std::string_view what) {
  return fmt::format("{}{}", what, n == 1 ? "" : "s");
}

std::string counted(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}", n, plural(n, what));
}

std::array<std::string, 2> format_apart(std::uint64_t a, std::uint64_t b) {
  std::array<std::string, 2> text{format_bytes(a), format_bytes(b)};
  if (text[0] != text[1] || a == b) return text;
  text[0] += fmt::format(" ({} bytes)", format_count(static_cast<std::int64_t>(a)));
  text[1] += fmt::format(" ({} bytes)", format_count(static_cast<std::int64_t>(b)));
  return text;
}

std::string format_short(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (std::abs(value) >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 && value == std::floor(value) ? 0 : 1;
  return fmt::format("{:.{}f}{}", value, digits, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string canonical_name(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names) {
  constexpr std::size_t kLongest = 40;
  if (name.empty() || name.size() > kLongest) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string_view candidate : names) {
    // Damerau-Levenshtein (adjacent swaps count one), three rows at a time.
    std::vector<std::size_t> before, last(candidate.size() + 1), row(candidate.size() + 1);
    for (std::size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= name.size(); ++i) {
      before = last;
      last = row;
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t change = name[i - 1] == candidate[j - 1] ? 0 : 1;
        row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
        if (i > 1 && j > 1 && name[i - 1] == candidate[j - 2] && name[i - 2] == candidate[j - 1]) {
          row[j] = std::min(row[j], before[j - 2] + 1);
        }
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace duet
