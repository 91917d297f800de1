#include "tools/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/examples.h"
#include "tools/output.h"
#include "train/command_line.h"
#include "train/text.h"
#include "train/typing.h"

namespace duet {

void Flags::text(std::string_view name, std::string* at, std::string_view form,
                 std::string_view help) {
  Flag flag{name, form, help};
  if (!at->empty()) flag.shown_default = *at;
  flag.set = [at](const std::string& where, const std::string& value) {
    // Empty is how the commands know that a flag was not given.
    check(!value.empty(), ErrorKind::usage, where, ": got \"\", expected at least one character");
    *at = value;
  };
  flags_.push_back(std::move(flag));
}

void Flags::required_text(std::string_view name, std::string* at, std::string_view form,
                          std::string_view help) {
  text(name, at, form, help);
  flags_.back().required = true;
}

void Flags::integer(std::string_view name, std::int64_t* at, std::int64_t min, std::int64_t max,
                    std::string_view help) {
  Flag flag{name, "N", help};
  flag.shown_default = std::to_string(*at);
  flag.set = [=](const std::string& where, const std::string& value) {
    const auto n = parse_integer(value);
    check(n && *n >= min && *n <= max, ErrorKind::usage, where, ": got ", in_quotes(value),
          ", expected an integer in [", min, ", ", max, "]", minus_hint(value));
    *at = *n;
  };
  flags_.push_back(std::move(flag));
}

void Flags::number(std::string_view name, double* at, double min, double max,
                   std::string_view help) {
  Flag flag{name, "X", help};
  flag.shown_default = format_number(*at);
  flag.set = [=](const std::string& where, const std::string& value) {
    const auto x = parse_number(value);
    check(x && *x >= min && *x <= max, ErrorKind::usage, where, ": got ", in_quotes(value),
          ", expected a number in [", format_number(min), ", ", format_number(max), "]",
          minus_hint(value));
    *at = *x;
  };
  flags_.push_back(std::move(flag));
}

void Flags::toggle(std::string_view name, bool* at, std::string_view help) {
  Flag flag{name, "", help};
  flag.toggle = true;
  flag.set = [at](const std::string& where, const std::string& value) {
    const std::optional<bool> parsed = parse_boolean(value);
    check(parsed.has_value(), ErrorKind::usage, where, ": got ", in_quotes(value), ", expected ",
          kBooleanForm);
    *at = *parsed;
  };
  flags_.push_back(std::move(flag));
}

void Flags::positional(std::string* at, std::string_view form, bool required) {
  positional_ = at;
  positional_form_ = form;
  positional_required_ = required;
}

Flags::Flag* Flags::find(std::string_view name) {
  const std::string wanted = canonical_name(name);
  const auto at = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) {
    return canonical_name(flag.name) == wanted;
  });
  return at == flags_.end() ? nullptr : &*at;
}

void Flags::unknown(const std::string& shown, std::string_view name) const {
  std::vector<std::string_view> names = {"help"};
  for (const Flag& flag : flags_) names.push_back(flag.name);
  if (settings_ != nullptr) {
    for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  }
  std::vector<std::string> canonical;
  for (const std::string_view n : names) canonical.push_back(canonical_name(n));
  const std::vector<std::string_view> views(canonical.begin(), canonical.end());
  const std::string_view nearest = nearest_name(canonical_name(name), views);
  throw Error(
      ErrorKind::usage,
      concat(shown, ": no such flag",
             nearest.empty() ? "; " + see_help() : concat("; did you mean --", nearest, "?")));
}

// Whether a word where a value is expected is the next flag, its dashes mistyped or not.
bool Flags::is_another_flag(const std::string& word) {
  if (word.rfind("--", 0) == 0) return word.size() > 2;
  const std::optional<std::string> name = name_after_dash(word);
  return name && (find(*name) != nullptr || (settings_ != nullptr && find_key(*name) != nullptr));
}

// A word after a switch may be the configuration file, but one that is no path is a value for it
// that nobody understands.
void Flags::check_no_value(const std::string& shown, const std::string& word) const {
  const bool file = word.find_first_of("./") != std::string::npos || file_system().exists(word);
  check(settings_ == nullptr || word.empty() || word[0] == '-' || file || name_after_dash(word),
        ErrorKind::usage, shown, ": got ", in_quotes(word), ", expected ", kBooleanForm);
}

// One flag at arguments[i], its value included. False for --help.
bool Flags::take(const std::vector<std::string>& arguments, std::size_t& i) {
  const std::string& argument = arguments[i];
  const std::size_t equals = argument.find('=');
  const std::string shown = printable(argument.substr(0, equals));
  std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  if (canonical_name(name) == "help") return false;

  Flag* flag = find(name);
  const ConfigKey* key = settings_ != nullptr && flag == nullptr ? find_key(name) : nullptr;
  bool negated = false;
  if (flag == nullptr && key == nullptr && canonical_name(name).rfind("no_", 0) == 0) {
    flag = find(name.substr(3));
    key = settings_ != nullptr && flag == nullptr ? find_key(name.substr(3)) : nullptr;
    negated = true;
    const bool boolean = (flag != nullptr && flag->toggle) || (key != nullptr && is_boolean(*key));
    if (!boolean) {
      flag = nullptr;
      key = nullptr;
    }
  }
  if (flag == nullptr && key == nullptr) unknown(shown, name);

  const bool boolean = flag != nullptr ? flag->toggle : is_boolean(*key);
  std::string value;
  if (negated) {
    check(equals == std::string::npos, ErrorKind::usage, shown, ": takes no value; write --",
          name.substr(3), "=true or --", name.substr(3), "=false");
    value = "false";
  } else if (equals != std::string::npos) {
    value = argument.substr(equals + 1);
  } else if (boolean) {
    const bool given = i + 1 < arguments.size() && parse_boolean(arguments[i + 1]);
    if (!given && i + 1 < arguments.size()) check_no_value(shown, arguments[i + 1]);
    value = given ? arguments[++i] : "true";
  } else {
    const bool another = i + 1 < arguments.size() && is_another_flag(arguments[i + 1]);
    check(i + 1 < arguments.size() && !another, ErrorKind::usage, shown, ": has no value; write ",
          shown, " VALUE, or ", shown, "=VALUE for one that begins with --");
    value = arguments[++i];
  }
  if (flag != nullptr) {
    flag->set(shown, value);
    flag->seen = true;
  } else {
    settings_->push_back({std::string(key->name), FlagText{value}, shown});
  }
  return true;
}

bool Flags::parse(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool flag = argument.rfind("--", 0) == 0 && !name_after_dash(argument);
    if (argument == "-h" || (flag && !take(arguments, i))) {
      write_out(help());
      return false;
    }
    if (flag) continue;
    const std::optional<std::string> name = name_after_dash(argument);
    check(!name, ErrorKind::usage, printable(argument), ": ", dash_words(argument), ", expected --",
          printable(name.value_or("")), "; type two hyphens");
    check(argument.size() < 2 || argument[0] != '-', ErrorKind::usage, printable(argument),
          ": no such flag; flags begin with --");
    check(positional_ != nullptr && !positional_seen_, ErrorKind::usage, command_, ": got ",
          in_quotes(argument), ", expected ",
          positional_ != nullptr ? concat("one ", positional_form_) : std::string("flags only"));
    check(!argument.empty(), ErrorKind::usage, command_, ": got \"\", expected ", positional_form_);
    *positional_ = argument;
    positional_seen_ = true;
  }
  for (const Flag& flag : flags_) {
    check(!flag.required || flag.seen, ErrorKind::usage, command_, ": --", flag.name,
          " is missing; give --", flag.name, ' ', flag.form);
  }
  check(!positional_required_ || positional_seen_, ErrorKind::usage, command_, ": ",
        positional_form_, " is missing; ", see_help());
  return true;
}

std::string Flags::help() const {
  std::string out = fmt::format("{} {}\n  {}\n\n", command_, usage_, summary_);
  for (const Flag& flag : flags_) {
    std::string left = fmt::format("--{} {}", flag.name, flag.form);
    out += fmt::format("  {:<30} {}", left, flag.help);
    if (flag.required) {
      out += " (required)";
    } else if (!flag.shown_default.empty()) {
      out += fmt::format(" [{}]", flag.shown_default);
    }
    out += "\n";
  }
  if (settings_ != nullptr) out += config_help(listed_);
  return concat(out, "\n", kExitCodes, examples(command_));
}

std::string Flags::see_help() const {
  std::vector<std::string> words;
  std::istringstream in(command_);
  in.ignore(std::ssize(command_), ' ');  // "duet", which advised() says in its own way
  for (std::string word; in >> word;) words.push_back(word);
  words.emplace_back("--help");
  return "see " + advised(words);
}

void Flags::note_ignored() const {
  std::vector<std::string_view> ignored;
  for (const Setting& s : *settings_) {
    const ConfigKey& key = *find_key(s.key);
    const bool said = std::find(ignored.begin(), ignored.end(), key.name) != ignored.end();
    if (!listed_(key) && !said) ignored.push_back(key.name);
  }
  if (ignored.empty()) return;
  std::string names;
  for (const std::string_view name : ignored) names += concat(names.empty() ? "--" : ", --", name);
  note(concat(command_, " ignores ", names, ": no effect on the memory and time of a step"));
}

}  // namespace duet
