#include "runtime/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace duet {
namespace {

struct StoredType {
  std::string_view name;
  std::int64_t bits;
  std::optional<DType> dtype;
};

constexpr std::array kTypes{
    StoredType{"F32", 32, DType::f32},      StoredType{"F64", 64, DType::f64},
    StoredType{"BF16", 16, DType::bf16},    StoredType{"F16", 16, DType::f16},
    StoredType{"I32", 32, DType::i32},      StoredType{"I64", 64, DType::i64},
    StoredType{"U8", 8, DType::u8},         StoredType{"BOOL", 8, std::nullopt},
    StoredType{"I8", 8, std::nullopt},      StoredType{"I16", 16, std::nullopt},
    StoredType{"U16", 16, std::nullopt},    StoredType{"U32", 32, std::nullopt},
    StoredType{"U64", 64, std::nullopt},    StoredType{"C64", 64, std::nullopt},
    StoredType{"F8_E4M3", 8, std::nullopt}, StoredType{"F8_E5M2", 8, std::nullopt},
    StoredType{"F8_E8M0", 8, std::nullopt}, StoredType{"F6_E2M3", 6, std::nullopt},
    StoredType{"F6_E3M2", 6, std::nullopt}, StoredType{"F4", 4, std::nullopt},
};

const StoredType* find_type(std::string_view name) {
  const auto* it = std::find_if(kTypes.begin(), kTypes.end(),
                                [&](const StoredType& t) { return t.name == name; });
  return it == kTypes.end() ? nullptr : it;
}

// Follows the JSON without building a tree: sees duplicate keys, needs memory only for what it
// keeps, and refuses any nesting that the format does not have.
class HeaderParser {
 public:
  HeaderParser(const CheckedReader& reader, SafetensorsHeader& header)
      : reader_(reader), header_(header) {}

  bool null() { return refuse("null"); }
  bool boolean(bool value) { return refuse(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return refuse(concat(value)); }  // negative
  bool number_float(double, const std::string& text) { return refuse(printable(text)); }
  bool binary(nlohmann::json::binary_t&) { return refuse("bytes"); }
  bool number_unsigned(std::uint64_t value) {
    if (place_ != Place::shape && place_ != Place::offsets) return refuse(concat(value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse(concat(value));
    }
    const auto number = static_cast<std::int64_t>(value);
    if (place_ == Place::offsets) {
      if (offset_count_ == 2) fail("data_offsets", "a third number", "two: [begin, end]");
      (offset_count_++ == 0 ? entry_.begin : entry_.end) = number;
    } else {
      if (entry_.shape.ndim() == kMaxDims) {
        fail("shape", "more dimensions", concat("at most ", kMaxDims));
      }
      entry_.shape.push_back(number);
    }
    return true;
  }
  bool string(std::string& value) {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (place_ == Place::entry && key_ == "dtype") {
      entry_.stored_dtype = std::move(value);
    } else {
      return refuse(in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::top) {
      place_ = Place::names;
    } else if (place_ == Place::names) {
      place_ = name_ == kMetadataKey ? Place::metadata : Place::entry;
      entry_ = {};
      offset_count_ = 0;
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      return refuse("an object");
    }
    return true;
  }
  bool key(std::string& text) {
    if (place_ == Place::names) {
      start_name(text);
    } else if (place_ == Place::metadata) {
      if (header_.metadata.count(text) > 0) {
        fail("__metadata__", "key " + in_quotes(text) + " twice", "each key once");
      }
    } else {
      bool* seen = text == "dtype"          ? &has_dtype_
                   : text == "shape"        ? &has_shape_
                   : text == "data_offsets" ? &has_offsets_
                                            : nullptr;
      if (seen == nullptr) fail("key", in_quotes(text), "dtype, shape and data_offsets");
      if (std::exchange(*seen, true)) fail("key", in_quotes(text) + " twice", "each key once");
    }
    key_ = std::move(text);
    return true;
  }
  bool end_object() {
    if (place_ == Place::entry) {
      if (!has_dtype_) fail("entry", "no dtype", "dtype, shape and data_offsets");
      if (!has_shape_) fail("entry", "no shape", "dtype, shape and data_offsets");
      if (!has_offsets_) fail("entry", "no data_offsets", "dtype, shape and data_offsets");
      header_.entries.emplace(name_, entry_);
    }
    place_ = place_ == Place::names ? Place::done : Place::names;
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ == Place::entry && key_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::entry && key_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      return refuse("a list");
    }
    return true;
  }
  bool end_array() {
    if (place_ == Place::offsets && offset_count_ != 2) {
      fail("data_offsets", concat(offset_count_, " numbers"), "two: [begin, end]");
    }
    place_ = Place::entry;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception&) {
    reader_.fail("the header is not valid JSON", concat("at byte ", 8 + position),
                 in_quotes(last_token), "JSON text in UTF-8");
  }

 private:
  enum class Place : std::uint8_t { top, names, entry, metadata, shape, offsets, done };

  void start_name(const std::string& text) {
    name_ = text;
    if (text == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) fail("key", "__metadata__ twice", "it once");
      return;
    }
    if (const std::string_view fault = name_fault(text); !fault.empty()) {
      fail("name", fault, concat("1 to ", kMaxNameBytes, " bytes without control characters"));
    }
    if (header_.entries.count(text) > 0) fail("name", "it twice", "each name once");
    if (header_.entries.size() == kMaxTensors) {
      fail("name", concat("more than ", kMaxTensors, " tensors"), "at most that many");
    }
  }

  // A value of a kind that does not belong where it stands.
  bool refuse(const std::string& got) const {
    switch (place_) {
      case Place::top:
      case Place::done:
        reader_.fail("the header", "at byte 8", got, "an object {\"name\": {...}}");
      case Place::names:
        fail("entry", got, "an object");
      case Place::metadata:
        fail("value of " + in_quotes(key_), got, "a string");
      case Place::entry:
        fail(key_, got, key_ == "dtype" ? "a string" : "a list of numbers");
      case Place::shape:
      case Place::offsets:
        fail(key_, got, "whole numbers from 0 to 2^63-1");
    }
    return false;
  }
  [[noreturn]] void fail(std::string_view what, std::string_view got,
                         std::string_view expected) const {
    reader_.fail(concat("bad ", what),
                 name_ == kMetadataKey ? "in __metadata__" : "in tensor " + in_quotes(name_), got,
                 expected);
  }

  const CheckedReader& reader_;
  SafetensorsHeader& header_;
  Place place_ = Place::top;
  std::string name_, key_;
  SafetensorsEntry entry_;
  int offset_count_ = 0;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
};

// The entry's type is known, and its byte range is exactly what type and shape need.
void check_entry(const CheckedReader& reader, const std::string& name, SafetensorsEntry& e) {
  const std::string where = "in tensor " + in_quotes(name);
  const StoredType* type = find_type(e.stored_dtype);
  if (type == nullptr) {
    reader.fail("unknown dtype", where, in_quotes(e.stored_dtype), "F32, F64, BF16, F16, I64, ...");
  }
  e.dtype = type->dtype;
  if (e.begin > e.end) {
    reader.fail("data_offsets run backwards", where, concat('[', e.begin, ", ", e.end, ']'),
                "begin <= end");
  }
  // Sizes of 0 count as 1 here, so that no stride of an empty tensor overflows either.
  std::optional<std::int64_t> bits = type->bits;
  bool empty = false;
  for (const std::int64_t d : e.shape) {
    empty = empty || d == 0;
    if (bits) bits = checked_mul(*bits, std::max<std::int64_t>(d, 1));
  }
  if (!bits) {
    reader.fail("the shape is too large", where, e.shape, "less than 2^63 bits");
  }
  const std::int64_t wanted = empty ? 0 : *bits;
  if (wanted % 8 != 0 || e.end - e.begin != wanted / 8) {
    reader.fail(
        "data_offsets do not fit shape and dtype", where, concat(e.end - e.begin, " bytes"),
        concat(wanted / 8, wanted % 8 ? ".5" : "", " bytes for ", e.shape, " of ", e.stored_dtype));
  }
}

// The tensors tile the data section: in order, without hole, overlap or rest.
void check_layout(const CheckedReader& reader, SafetensorsHeader& header) {
  std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
  for (auto& [name, entry] : header.entries) {
    check_entry(reader, name, entry);
    order.push_back(header.entries.find(name).operator->());
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  const std::int64_t data_bytes = reader.size() - header.data_begin;
  std::int64_t next = 0;
  for (const auto* item : order) {
    const SafetensorsEntry& e = item->second;
    const std::string where = "in tensor " + in_quotes(item->first);
    if (e.begin != next) {
      reader.fail(e.begin > next ? "a hole before the data" : "an overlap in the data", where,
                  concat("begin ", e.begin), concat(next, ", where the previous tensor ends"));
    }
    if (e.end > data_bytes) {
      reader.fail("the file ends inside the data", where,
                  concat(data_bytes, " bytes of data (file of ", reader.size(), ")"),
                  concat(e.end, " or more"));
    }
    next = e.end;
    header.names.push_back(item->first);
  }
  if (next != data_bytes) {
    reader.fail("bytes after the last tensor", concat("at byte ", header.data_begin + next),
                concat(data_bytes - next, " more bytes"), "the end of the file");
  }
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  return kTypes[static_cast<std::size_t>(dtype)].name;
}

std::string_view name_fault(std::string_view name) {
  if (name.empty()) return "an empty name";
  if (name.size() > kMaxNameBytes) return "a name that is too long";
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  return control ? "a control character" : "";
}

SafetensorsHeader read_safetensors_header(const CheckedReader& reader) {
  const auto length = reader.number<std::uint64_t>(0, "the header's length");
  const std::string text = reader.text(8, length, kMaxHeaderBytes, "the header");
  SafetensorsHeader header;
  header.data_begin = 8 + static_cast<std::int64_t>(text.size());
  // The JSON parser would skip a byte order mark; the format has none.
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string::npos || text[start] != '{') {
    reader.fail("the header", "at byte 8",
                start == std::string::npos ? "no text" : in_quotes(text.substr(start, 16)),
                "an object {\"name\": {...}}");
  }
  HeaderParser parser(reader, header);
  nlohmann::json::sax_parse(text, &parser);
  check_layout(reader, header);
  return header;
}

}  // namespace duet
