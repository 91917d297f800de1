// The one table of configuration keys. Parsing of files and flags, --print-config, --help, the
// written config.toml and every message about a key come from it.
//
//   const ConfigKey* key = find_key("learning-rate");
//   set_value(*key, Setting{"learning_rate", FlagText{"3e-4"}, "--learning_rate"}, config);
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/run_config.h"

namespace duet {

enum class KeyGroup : std::uint8_t { model, coupling, data, training, device, run };

// Where a value lies in RunConfig.
template <class T>
using Access = T& (*)(RunConfig&);

// A choice that is part of the language but not of this build, and what to do about it.
struct AbsentChoice {
  std::string_view name, hint;
};

struct IntegerKey {
  Access<std::int64_t> at;
  std::int64_t min, max;
};
struct SeedKey {
  Access<std::uint64_t> at;
};
struct NumberKey {  // the bounds hold in float32 too, which trains; only 0 is 0 there
  Access<double> at;
  double min, max;
  bool open_min = false, open_max = false;  // the bound itself is refused
};
struct BooleanKey {
  Access<bool> at;
};
struct TextKey {
  Access<std::string> at;
  std::string_view accepted;
  bool (*valid)(std::string_view) = nullptr;  // null: any text
};
struct ChoiceKey {
  std::string_view (*get)(RunConfig&);
  void (*set)(RunConfig&, std::string_view word);  // Requires one of `names`.
  std::vector<std::string_view> names;
  std::vector<AbsentChoice> absent;
  // The name that other words for it stand for; throws Error(usage) for a word that is none. Null:
  // there are no other words.
  std::string (*meaning)(const std::string& word, const std::string& where) = nullptr;
};
struct ListKey {
  Access<std::vector<std::int64_t>> at;
  std::int64_t min, max;
};
struct ConfigKey {
  std::string_view name;
  KeyGroup group;
  std::variant<IntegerKey, SeedKey, NumberKey, BooleanKey, TextKey, ChoiceKey, ListKey> type;
  std::string_view help;
  bool shape = false;  // fixed by a checkpoint: a resumed run cannot change it
};

// A value as its source spelled it.
struct FlagText {
  std::string text;
};
struct OtherValue {
  std::string what;  // "a table", "a date"
};
using RawValue = std::variant<FlagText, std::int64_t, double, bool, std::string,
                              std::vector<std::int64_t>, OtherValue>;

struct Setting {
  std::string key;  // canonical: with '_'
  RawValue value;
  std::string where;  // starts a message: "--seed", or "run.toml: seed (line 3, column 8)"
};

std::span<const ConfigKey> config_keys();
// Which keys are meant: every one, or those that change what one training step takes.
using KeyFilter = bool (*)(const ConfigKey&);
inline bool every_key(const ConfigKey&) { return true; }
bool is_of_a_step(const ConfigKey& key);
std::string_view group_title(KeyGroup group);

// The key with this name ('-' and '_' alike), or null.
const ConfigKey* find_key(std::string_view name);
// The same; throws Error(usage) with the nearest name: `where` starts the message.
const ConfigKey& require_key(std::string_view name, const std::string& where);
std::size_t index_of(const ConfigKey& key);

// "an integer in [1, 4096]", "one of cosine, linear, constant, wsd", ...
std::string accepted_form(const ConfigKey& key);
// Writes the value. Throws Error(usage): where, the value, the accepted form.
void set_value(const ConfigKey& key, const Setting& setting, RunConfig& config);
// The value as TOML: "0.001", "\"cosine\"", "[0, 2]"; empty for a key without a value.
std::string toml_value(const ConfigKey& key, const RunConfig& config);
bool is_boolean(const ConfigKey& key);

}  // namespace duet
