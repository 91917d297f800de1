// Values of configuration keys: from what a file or a flag spelled, to the field, and back.
#include <cmath>
#include <limits>

#include "runtime/printable.h"
#include "train/config_keys.h"
#include "train/data.h"
#include "train/text.h"
#include "train/typing.h"

namespace duet {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

// The value as a message shows it.
std::string shown(const RawValue& value) {
  return std::visit(
      Overload{
          [](const FlagText& v) { return in_quotes(v.text); },
          [](std::int64_t v) { return std::to_string(v); },
          [](double v) { return format_number(v); },
          [](bool v) { return std::string(v ? "true" : "false"); },
          [](const std::string& v) { return "the string " + in_quotes(v); },
          [](const std::vector<std::int64_t>& v) { return concat("a list of ", v.size()); },
          [](const OtherValue& v) { return v.what; },
      },
      value);
}

std::string join(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

[[noreturn]] void refuse(const ConfigKey& key, const Setting& s, const std::string& hint = "") {
  throw Error(ErrorKind::usage,
              concat(s.where, ": got ", shown(s.value), ", expected ", accepted_form(key), hint));
}

// A string in a file that would have been a fine number, list or boolean without its quotes, or a
// number on the command line whose minus is another dash.
std::string spelling_hint(const Setting& s) {
  if (const auto* flag = std::get_if<FlagText>(&s.value)) return minus_hint(flag->text);
  return std::holds_alternative<std::string>(s.value) ? "; write it without quotes" : "";
}

std::int64_t integer_value(const ConfigKey& key, const Setting& s) {
  if (const auto* v = std::get_if<std::int64_t>(&s.value)) return *v;
  if (const auto* v = std::get_if<FlagText>(&s.value)) {
    if (const auto n = parse_integer(v->text)) return *n;
  }
  refuse(key, s, spelling_hint(s));
}

double number_value(const ConfigKey& key, const Setting& s) {
  if (const auto* v = std::get_if<double>(&s.value)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&s.value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<FlagText>(&s.value)) {
    if (const auto n = parse_number(v->text)) return *n;
  }
  refuse(key, s, spelling_hint(s));
}

std::string text_value(const ConfigKey& key, const Setting& s) {
  if (const auto* v = std::get_if<FlagText>(&s.value)) return v->text;
  if (const auto* v = std::get_if<std::string>(&s.value)) return *v;
  refuse(key, s, "; write it in quotes");
}

void set(const IntegerKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  const std::int64_t v = integer_value(key, s);
  if (v < k.min || v > k.max) refuse(key, s);
  k.at(config) = v;
}

void set(const SeedKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  const std::int64_t v = integer_value(key, s);
  if (v < 0) refuse(key, s);
  k.at(config) = static_cast<std::uint64_t>(v);
}

bool in_range(const NumberKey& k, double v) {
  return (k.open_min ? v > k.min : v >= k.min) && (k.open_max ? v < k.max : v <= k.max);
}

// Why a number that is in range is none in float32; empty where it is one.
std::string float32_hint(const NumberKey& k, double v) {
  const auto used = static_cast<float>(v);
  constexpr float kLeast = std::numeric_limits<float>::min();  // of those without lost digits
  if (v != 0 && std::abs(used) < kLeast) {
    return concat("; float32, which trains, has no number that small: the smallest is ",
                  format_number(static_cast<double>(kLeast)), k.open_min ? "" : ", beside 0");
  }
  if (in_range(k, static_cast<double>(used))) return "";
  return concat("; in float32, which trains, it is ", format_number(static_cast<double>(used)),
                ": the largest below is ",
                format_number(static_cast<double>(std::nextafter(used, 0.0F))));
}

void set(const NumberKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  const double v = number_value(key, s);
  if (!in_range(k, v)) refuse(key, s);  // NaN and infinity too: bounds are finite
  if (const std::string hint = float32_hint(k, v); !hint.empty()) refuse(key, s, hint);
  k.at(config) = v == 0 ? 0 : v;  // -0 is 0
}

void set(const BooleanKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  if (const auto* v = std::get_if<bool>(&s.value)) {
    k.at(config) = *v;
    return;
  }
  const auto* text = std::get_if<FlagText>(&s.value);
  const std::optional<bool> value = text != nullptr ? parse_boolean(text->text) : std::nullopt;
  if (!value) refuse(key, s, spelling_hint(s));
  k.at(config) = *value;
}

void set(const TextKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  std::string v = text_value(key, s);
  check(first_invalid_utf8(v) < 0 && v.find('\0') == std::string::npos, ErrorKind::usage, s.where,
        ": got ", in_quotes(v),
        ", expected text in UTF-8 without NUL; the run directory could not record it");
  if (k.valid != nullptr && !k.valid(v)) refuse(key, s);
  k.at(config) = std::move(v);
}

void set(const ChoiceKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  std::string v = text_value(key, s);
  if (k.meaning != nullptr) v = k.meaning(v, s.where);
  const std::string wanted = canonical_name(v);
  for (const std::string_view name : k.names) {
    if (canonical_name(name) == wanted) return k.set(config, name);
  }
  for (const AbsentChoice& absent : k.absent) {
    if (absent.name == wanted) {
      throw Error(ErrorKind::usage, concat(s.where, ": ", v, " is not available: ", absent.hint));
    }
  }
  const std::string_view nearest = nearest_name(wanted, k.names);
  refuse(key, s, nearest.empty() ? "" : concat("; did you mean ", nearest, "?"));
}

void set(const ListKey& k, const ConfigKey& key, const Setting& s, RunConfig& config) {
  std::vector<std::int64_t> out;
  if (const auto* v = std::get_if<std::vector<std::int64_t>>(&s.value)) {
    out = *v;
  } else if (const auto* flag = std::get_if<FlagText>(&s.value)) {
    std::string_view text = flag->text;  // "0,2", "[0, 2]" or "[]"
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
      text = text.substr(1, text.size() - 2);
    }
    while (text.find_first_not_of(' ') != std::string_view::npos) {
      std::string_view item = text.substr(0, text.find(','));
      text.remove_prefix(std::min(text.size(), item.size() + 1));
      item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
      item = item.substr(0, item.find_last_not_of(' ') + 1);
      const auto n = parse_integer(item);
      if (!n) refuse(key, s);
      out.push_back(*n);
    }
  } else {
    refuse(key, s, spelling_hint(s));
  }
  for (const std::int64_t n : out) {
    check(n >= k.min && n <= k.max, ErrorKind::usage, s.where, ": got ", n,
          " in the list, expected ", accepted_form(key));
  }
  k.at(config) = std::move(out);
}

}  // namespace

std::string accepted_form(const ConfigKey& key) {
  return std::visit(
      Overload{
          [](const IntegerKey& k) { return concat("an integer in [", k.min, ", ", k.max, "]"); },
          [](const SeedKey&) { return std::string("an integer in [0, 9223372036854775807]"); },
          [](const NumberKey& k) {
            return concat("a number in ", k.open_min ? '(' : '[', k.min, ", ", k.max,
                          k.open_max ? ')' : ']');
          },
          [](const BooleanKey&) { return std::string(kBooleanForm); },
          [](const TextKey& k) { return std::string(k.accepted); },
          [](const ChoiceKey& k) { return "one of " + join(k.names); },
          [](const ListKey& k) {
            return concat("a list of integers in [", k.min, ", ", k.max, "]");
          },
      },
      key.type);
}

void set_value(const ConfigKey& key, const Setting& setting, RunConfig& config) {
  std::visit([&](const auto& type) { set(type, key, setting, config); }, key.type);
}

std::string toml_value(const ConfigKey& key, const RunConfig& config) {
  RunConfig copy = config;  // accessors hand out references to write through
  return std::visit(
      Overload{
          [&](const IntegerKey& k) { return std::to_string(k.at(copy)); },
          [&](const SeedKey& k) { return std::to_string(k.at(copy)); },
          [&](const NumberKey& k) { return format_number(k.at(copy)); },
          [&](const BooleanKey& k) { return std::string(k.at(copy) ? "true" : "false"); },
          [&](const TextKey& k) { return toml_string(k.at(copy)); },
          [&](const ChoiceKey& k) { return toml_string(k.get(copy)); },
          [&](const ListKey& k) {
            std::string out = "[";
            for (const std::int64_t n : k.at(copy)) {
              out += (out.size() > 1 ? ", " : "") + std::to_string(n);
            }
            return out + "]";
          },
      },
      key.type);
}

}  // namespace duet
