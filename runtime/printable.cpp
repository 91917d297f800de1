#include "runtime/printable.h"

#include <array>
#include <cstdint>
#include <iomanip>
#include <locale>
#include <sstream>

namespace duet {
namespace {

std::uint32_t code_point(std::string_view sequence) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(sequence[i]));
  };
  switch (sequence.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
    case 3:
      return (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
    default:
      return (byte(0) & 0x07U) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 |
             (byte(3) & 0x3fU);
  }
}

bool is_safe(std::uint32_t c) {
  const bool control = c < 0x20 || (0x7f <= c && c < 0xa0);
  const bool line_break = c == 0x2028 || c == 0x2029;
  const bool reorders = c == 0x061c || c == 0x200e || c == 0x200f || (0x202a <= c && c <= 0x202e) ||
                        (0x2066 <= c && c <= 0x2069) || c == 0xfeff;
  return !control && !line_break && !reorders;
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out += "\\x";
    out += kHex[b >> 4];
    out += kHex[b & 0xfU];
  }
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xc2   ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) return 0;
  }
  const std::uint32_t c = code_point(text.substr(0, length));
  const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  const bool surrogate = 0xd800 <= c && c < 0xe000;
  return overlong || surrogate || c > 0x10ffff ? 0 : length;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  std::size_t shown = 0;
  while (!text.empty()) {
    if (shown++ == limit) return out + "...";
    std::size_t length = utf8_length(text);
    if (length > 0 && is_safe(code_point(text.substr(0, length)))) {
      out += text.substr(0, length);
    } else {
      if (length == 0) length = 1;
      append_escaped(out, text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string format_bytes(std::size_t bytes) {
  constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::ostringstream text;
  text.imbue(std::locale::classic());
  if (bytes < 1024) {
    text << bytes << " B";
    return text.str();
  }
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  const int digits = value < 10 ? 2 : value < 100 || unit >= 2 ? 1 : 0;
  text << std::fixed << std::setprecision(digits) << value << ' ' << kUnits[unit];
  return text.str();
}

}  // namespace duet
