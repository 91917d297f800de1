// Text of keys, values and reports: numbers that no locale changes, sizes and durations for people,
// and the name a typing error most likely meant.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace duet {

// The whole of `text` as a number (a leading '+' is taken), or nothing. No locale, no hex.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);

// Bytes as a person writes them: "16GiB", "900 MiB", "1.5GB", "2000000000"; nothing for what is no
// such size, for 0, and for more than any machine has.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
inline constexpr std::string_view kBytesForm =
    "a size such as 16GiB, 900MiB, 1.5GB or 2000000000 (bytes)";

// The shortest text that reads back as the same double: "0.001", "1.0", "1e-08".
std::string format_number(double value);
std::string format_count(std::int64_t value);                // "4,261,888"
std::string counted(std::int64_t n, std::string_view what);  // "1 step", "4000 steps"
std::string plural(std::int64_t n, std::string_view what);   // the word alone
// Two sizes of one message: with their bytes where they would read alike.
std::array<std::string, 2> format_apart(std::uint64_t a, std::uint64_t b);
std::string format_short(double value);       // "16.0k", "1.50M"
std::string format_duration(double seconds);  // "1m31s"

// A TOML basic string that reads back as `text`. Requires valid UTF-8.
std::string toml_string(std::string_view text);

// "-" and "_" are the same in names of keys, flags and choices.
std::string canonical_name(std::string_view name);
// The entry of `names` with the smallest edit distance to `name`, or empty when none is near.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace duet
