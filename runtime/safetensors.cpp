#include "runtime/safetensors.h"

#include <algorithm>

#include "runtime/memory_ops.h"
#include "runtime/safetensors_header.h"

namespace duet {
namespace {

constexpr std::int64_t kPiece = 1 << 18;  // elements converted at a time

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(CheckedReader(path, "safetensors file"));
  SafetensorsHeader header = read_safetensors_header(file.reader_);
  file.entries_ = std::move(header.entries);
  file.names_ = std::move(header.names);
  file.metadata_ = std::move(header.metadata);
  file.data_begin_ = header.data_begin;
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const SafetensorsEntry* e = find(name);
  check(e != nullptr, ErrorKind::file, printable(path(), 400), ": no tensor \"", printable(name),
        "\": got ", names_.size(), " others",
        names_.empty() ? "" : concat(" (first: \"", printable(names_.front()), "\")"),
        ", expected it; check that the file belongs to this model");
  return *e;
}

// Elements [offset, offset + numel) of the stored tensor into a contiguous `out` of its dtype.
void SafetensorsFile::read_bytes(const SafetensorsEntry& e, std::int64_t offset, Tensor& out,
                                 const std::string& name) const {
  const auto width = static_cast<std::int64_t>(size_of(out.dtype()));
  reader_.read(data_begin_ + e.begin + offset * width, out.mutable_view().data, out.numel() * width,
               "tensor " + in_quotes(name));
}

void SafetensorsFile::read_into(const std::string& name, Tensor& out) const {
  const SafetensorsEntry& e = entry(name);
  const std::string where = "in tensor " + in_quotes(name);
  if (!(e.shape == out.shape())) {
    reader_.fail("wrong shape", where, e.shape, out.shape(),
                 "use a file that was written for this model");
  }
  const bool converts = e.dtype && is_floating(*e.dtype) && is_floating(out.dtype());
  if (!converts && e.dtype != out.dtype()) {
    reader_.fail("dtype does not convert", where, e.stored_dtype, out.dtype(),
                 "convert the file first");
  }
  if (out.device().type == DeviceType::meta || out.numel() == 0) return;
  if (!out.is_contiguous() || out.device().type != DeviceType::cpu) {
    Tensor whole = Tensor::empty(out.shape(), out.dtype());
    read_into(name, whole);
    copy(out, whole);
  } else if (e.dtype == out.dtype()) {
    read_bytes(e, 0, out, name);
  } else {
    const std::int64_t n = out.numel();
    const Tensor flat = out.reshape_view({n});
    for (std::int64_t i = 0; i < n; i += kPiece) {
      const std::int64_t count = std::min(kPiece, n - i);
      Tensor piece = Tensor::empty({count}, *e.dtype);
      read_bytes(e, i, piece, name);
      Tensor target = flat.slice_view(0, i, i + count);
      copy(target, piece);
    }
  }
}

Tensor SafetensorsFile::load(const std::string& name) const {
  const SafetensorsEntry& e = entry(name);
  if (!e.dtype) {
    reader_.fail("dtype is not supported", "in tensor " + in_quotes(name), e.stored_dtype,
                 "F32, F64, BF16, F16, I32, I64 or U8", "convert the file first");
  }
  Tensor out = Tensor::empty(e.shape, *e.dtype);
  read_into(name, out);
  return out;
}

}  // namespace duet
