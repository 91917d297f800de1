// The header of a safetensors file: its JSON, its types and the rules a file must keep.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/safetensors.h"

namespace duet {

inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
inline constexpr std::size_t kMaxTensors = 100'000;
inline constexpr std::size_t kMaxNameBytes = 1024;

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::vector<std::string> names;  // in order of their bytes
  Metadata metadata;
  std::int64_t data_begin = 0;
};

SafetensorsHeader read_safetensors_header(const CheckedReader& reader);

// "BF16" for DType::bf16.
std::string_view safetensors_dtype(DType dtype);
// What is wrong with a tensor's name, or "".
std::string_view name_fault(std::string_view name);

}  // namespace duet
