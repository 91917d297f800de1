// JSON that others may have written: every reader of such files parses it here. Lists and objects
// nest at most kDeepestJson deep, so that no later walk over the tree can use up the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace duet {

inline constexpr std::size_t kDeepestJson = 64;

// Throws Error(file) naming `path` and the place when `text` is not JSON, or nests deeper.
nlohmann::json parse_json(std::string_view text, const std::string& path);

// Nothing in those cases: for a line of a log, and for files that a run can do without. Json is
// nlohmann::json, or nlohmann::ordered_json, which keeps the order of the keys.
template <class Json = nlohmann::json>
std::optional<Json> try_json(std::string_view text);

}  // namespace duet
