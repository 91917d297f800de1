// Flags of a subcommand: what it takes, in one list that parses, documents and refuses.
//
//   Flags flags("duet eval", "loss of a checkpoint on a text");
//   flags.text("checkpoint", &options.checkpoint, "DIR", "a run or one checkpoint");
//   flags.integer("stride", &options.stride, 0, 1 << 20, "targets that count per window");
//   if (!flags.parse(arguments)) return 0;   // --help was asked for and printed
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/config.h"

namespace duet {

class Flags {
 public:
  // `usage` follows the command's name: "[config.toml] [--key value ...]".
  Flags(std::string command, std::string usage, std::string summary)
      : command_(std::move(command)), usage_(std::move(usage)), summary_(std::move(summary)) {}

  void text(std::string_view name, std::string* at, std::string_view form, std::string_view help);
  void required_text(std::string_view name, std::string* at, std::string_view form,
                     std::string_view help);
  void integer(std::string_view name, std::int64_t* at, std::int64_t min, std::int64_t max,
               std::string_view help);
  void number(std::string_view name, double* at, double min, double max, std::string_view help);
  void toggle(std::string_view name, bool* at, std::string_view help);
  // One argument that is no flag.
  void positional(std::string* at, std::string_view form, bool required);
  // Takes every configuration key too, as settings for resolve_config(). --help lists `listed`.
  void configuration(std::vector<Setting>* at, KeyFilter listed = every_key) {
    settings_ = at;
    listed_ = listed;
  }

  // False when --help was printed. Throws Error(usage) for an unknown flag (with the nearest name),
  // a missing value, a value out of range, a missing required flag, or a second positional.
  bool parse(const std::vector<std::string>& arguments);
  std::string help() const;
  // Says on standard error which keys of the command line are not in `listed`: they change nothing.
  void note_ignored() const;

 private:
  struct Flag {
    std::string_view name, form, help;
    bool required = false;
    bool toggle = false;
    // Takes the text of the value; `where` starts a message.
    std::function<void(const std::string& where, const std::string& text)> set{};
    std::string shown_default{};
    bool seen = false;
  };
  Flag* find(std::string_view name);
  bool take(const std::vector<std::string>& arguments, std::size_t& i);
  bool is_another_flag(const std::string& word);
  void check_no_value(const std::string& shown, const std::string& word) const;
  [[noreturn]] void unknown(const std::string& shown, std::string_view name) const;
  std::string see_help() const;

  std::string command_, usage_, summary_;
  std::vector<Flag> flags_;
  std::string* positional_ = nullptr;
  std::string_view positional_form_;
  bool positional_required_ = false;
  bool positional_seen_ = false;
  std::vector<Setting>* settings_ = nullptr;
  KeyFilter listed_ = every_key;
};

}  // namespace duet
