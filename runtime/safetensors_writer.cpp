// write_safetensors(): header first, then each tensor's bytes, hashed as they pass.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/hash.h"
#include "runtime/memory_ops.h"
#include "runtime/safetensors_header.h"

namespace duet {
namespace {

// The reference implementation's order of types, widest first.
int rank(DType dtype) {
  constexpr DType kOrder[] = {DType::i64,  DType::f64, DType::f32, DType::i32,
                              DType::bf16, DType::f16, DType::u8};
  return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), dtype) -
                          std::begin(kOrder));
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void check_writable(const std::string& path, const NamedTensors& tensors,
                    const Metadata& metadata) {
  const std::string file = printable(path, 400);
  check(tensors.size() <= kMaxTensors, ErrorKind::file, file, ": too many tensors: got ",
        tensors.size(), ", expected at most ", kMaxTensors, "; write several files");
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    const std::string shown = printable(name);
    const std::string_view fault = !is_utf8(name)              ? "bytes that are no UTF-8"
                                   : name == kMetadataKey      ? "a reserved name"
                                   : !seen.insert(name).second ? "it twice"
                                                               : name_fault(name);
    check(fault.empty(), ErrorKind::file, file, ": bad name of tensor \"", shown, "\": got ", fault,
          ", expected a name of its own; rename the tensor");
    check(tensor.defined() && tensor.device().type != DeviceType::meta, ErrorKind::file, file,
          ": tensor \"", shown, "\" has no bytes to write: got ",
          tensor.defined() ? concat("one on ", tensor.device()) : "an undefined one",
          ", expected one with values");
  }
  for (const auto& [key, value] : metadata) {
    check(is_utf8(key) && is_utf8(value), ErrorKind::file, file, ": metadata \"", printable(key),
          "\": got bytes that are no UTF-8, expected text; encode it first");
  }
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string header_text(const std::vector<const NamedTensors::value_type*>& order,
                        const Metadata& metadata) {
  std::string text = "{";
  const auto separate = [&] {
    if (text.size() > 1) text += ',';
  };
  if (!metadata.empty()) {
    text += quoted(std::string(kMetadataKey)) + ":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      text += concat(first ? "" : ",", quoted(key), ':', quoted(value));
      first = false;
    }
    text += '}';
  }
  std::size_t offset = 0;
  for (const auto* item : order) {
    const Tensor& t = item->second;
    separate();
    text += concat(quoted(item->first), ":{\"dtype\":\"", safetensors_dtype(t.dtype()),
                   "\",\"shape\":[");
    for (int i = 0; i < t.ndim(); ++i) text += concat(i ? "," : "", t.shape()[i]);
    text += concat("],\"data_offsets\":[", offset, ',', offset + t.nbytes(), "]}");
    offset += t.nbytes();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  return text;
}

}  // namespace

WrittenFile write_safetensors(FileWriter& out, const NamedTensors& tensors,
                              const Metadata& metadata) {
  check_writable(out.path(), tensors, metadata);
  std::vector<const NamedTensors::value_type*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const int ra = rank(a->second.dtype()), rb = rank(b->second.dtype());
    return ra != rb ? ra < rb : a->first < b->first;
  });
  const std::string header = header_text(order, metadata);
  check(static_cast<std::int64_t>(header.size()) <= kMaxHeaderBytes, ErrorKind::file,
        printable(out.path(), 400), ": the header is too long: got ", header.size(),
        " bytes, expected at most ", kMaxHeaderBytes, "; write several files or less metadata");
  Hasher hasher;
  std::uint64_t bytes = 0;
  const auto put = [&](const void* data, std::size_t count) {
    out.write(data, count);
    hasher.update(data, count);
    bytes += count;
  };
  const std::uint64_t length = header.size();
  put(&length, sizeof length);
  put(header.data(), header.size());
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // hashed while still in the cache
  for (const auto* item : order) {
    const Tensor t = to_device(item->second, kCpu);
    const auto* data = static_cast<const char*>(t.view().data);
    for (std::size_t i = 0; i < t.nbytes(); i += kPiece) {
      put(data + i, std::min(kPiece, t.nbytes() - i));
    }
  }
  return {bytes, hasher.hex()};
}

WrittenFile write_safetensors(const std::string& path, const NamedTensors& tensors,
                              const Metadata& metadata) {
  check_writable(path, tensors, metadata);
  FileWriter out = file_system().create(path);
  try {
    WrittenFile written = write_safetensors(out, tensors, metadata);
    out.sync();
    out.close();
    return written;
  } catch (const Error&) {
    file_system().remove_file(path);
    throw;
  }
}

}  // namespace duet
