#include "train/json_text.h"

#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/printable.h"

namespace duet {
namespace {

// Builds the tree from the parser's events. The parser itself keeps no stack of calls; what walks
// the tree later (copying, printing, hashing) does.
template <class Json>
class TreeBuilder {
 public:
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename Json::binary_t&) { return false; }  // text holds none
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& text) {
    slot_ = &(*open_.back())[text];
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) {
    fault_ = concat("not JSON: ", printable(e.what(), 200));
    return false;
  }

  Json& root() { return root_; }
  const std::string& fault() const { return fault_; }

 private:
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (!parent.is_array()) return *slot_ = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kDeepestJson) {
      fault_ = concat("nested too deeply: got more levels of lists and objects, expected at most ",
                      kDeepestJson);
      return false;
    }
    open_.push_back(&place(std::move(value)));  // stays where it is until it is closed
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  // of the last key
  std::string fault_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& path) {
  TreeBuilder<nlohmann::json> builder;
  const bool whole = nlohmann::json::sax_parse(text, &builder);
  check(whole, ErrorKind::file, path, ": ", builder.fault());
  return std::move(builder.root());
}

template <class Json>
std::optional<Json> try_json(std::string_view text) {
  TreeBuilder<Json> builder;
  if (!Json::sax_parse(text, &builder)) return std::nullopt;
  return std::move(builder.root());
}

template std::optional<nlohmann::json> try_json(std::string_view);
template std::optional<nlohmann::ordered_json> try_json(std::string_view);

}  // namespace duet
