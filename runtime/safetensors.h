// safetensors: named tensors in one file (github.com/huggingface/safetensors): eight bytes with the
// length N of a JSON header, the header, then the tensors' bytes without gaps.
//
//   const auto file = SafetensorsFile::open("model.safetensors");
//   Tensor w = file.load("blocks.0.attn.q_proj.weight");
//   write_safetensors("out.safetensors", {{"w", w}}, {{"format", "pt"}});
//
// Opening checks the whole header against the file's size before any tensor is read; a malformed
// file throws Error(file). Bytes are read with pread, never mapped: a file that shrinks is an
// error, not a crash.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checked_reader.h"
#include "runtime/tensor.h"

namespace duet {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string stored_dtype;  // as in the file: "BF16"
  std::optional<DType>
      dtype;  // none: a valid type that Duet does not hold (BOOL, I8, F8_E4M3, ...)
  Shape shape;
  std::int64_t begin = 0;  // bytes from the start of the data section
  std::int64_t end = 0;
};

class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return reader_.path(); }
  const std::vector<std::string>& names() const { return names_; }  // in order of their bytes
  const Metadata& metadata() const { return metadata_; }
  const SafetensorsEntry* find(const std::string& name) const;  // null if there is none
  const SafetensorsEntry& entry(const std::string& name) const;

  // Reads a tensor into `out`, which has its shape and any strides, on any device, converting
  // between f32, f64, bf16 and f16; integers keep their type.
  void read_into(const std::string& name, Tensor& out) const;
  // A new tensor on the cpu, of the stored dtype.
  Tensor load(const std::string& name) const;

 private:
  explicit SafetensorsFile(CheckedReader reader) : reader_(std::move(reader)) {}
  void read_bytes(const SafetensorsEntry& entry, std::int64_t offset, Tensor& out,
                  const std::string& name) const;

  CheckedReader reader_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::vector<std::string> names_;
  Metadata metadata_;
  std::int64_t data_begin_ = 0;  // of the data section, in the file
};

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::string hash;  // XXH3-128 of all bytes (hash.h)
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Writes tensors (any strides, any device that has values) in the reference implementation's order:
// wider types first, then by name, so the same tensors give the same bytes. Throws Error(file),
// before anything is written, for a name that the format cannot hold or that comes twice.
WrittenFile write_safetensors(FileWriter& out, const NamedTensors& tensors,
                              const Metadata& metadata = {});
// The same into a new file that is on the disk at return; a failure leaves none.
WrittenFile write_safetensors(const std::string& path, const NamedTensors& tensors,
                              const Metadata& metadata = {});

}  // namespace duet
