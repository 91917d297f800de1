// safetensors: round trips, conversions, and one row per way a file can be malformed.
#include "runtime/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>

#include "runtime/hash.h"
#include "runtime/memory_ops.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/runtime/sanitizer.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {
namespace {

// The bytes of a file: length, header, data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const std::uint64_t n = header.size();
  std::memcpy(bytes.data(), &n, 8);
  return bytes + header + std::string(data_bytes, 'd');
}
std::string length_only(std::uint64_t n, const std::string& rest = "{}      ") {
  std::string bytes = file_of(rest, 0);
  std::memcpy(bytes.data(), &n, 8);
  return bytes;
}
// {"NAME": {"dtype": DTYPE, "shape": SHAPE, "data_offsets": OFFSETS}, ...}
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return concat('"', name, "\":{\"dtype\":", dtype, ",\"shape\":", shape,
                ",\"data_offsets\":", offsets, '}');
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return concat('{', entry("w", dtype, shape, offsets), '}');
}
std::string repeat(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

struct Malformed {
  const char* name;
  std::string bytes;
  std::string message;  // part of the error's text
};

std::vector<Malformed> malformed_files() {
  const std::string ok = entry("a", "\"F32\"", "[2]", "[0,8]");
  const std::string b = entry("b", "\"F32\"", "[2]", "[8,16]");
  std::vector<Malformed> rows{
      // The length.
      {"empty", "", "the file is empty"},
      {"one byte", "x", "the file ends inside the header's length at byte 0: got 1 bytes"},
      {"seven bytes", "1234567", "got 7 bytes in all, expected 8 bytes from there"},
      {"length 0", length_only(0), "the header at byte 8: got no text"},
      {"length 1", length_only(1), "the header is not valid JSON at byte"},
      {"length one short", length_only(7, "{      }"), "the header is not valid JSON"},
      {"length one over", length_only(9), "the header is longer than the file at byte 8: got 9"},
      {"length 2^63", length_only(std::uint64_t{1} << 63), "got 9223372036854775808 bytes"},
      {"length 2^64-1", length_only(~std::uint64_t{0}), "got 18446744073709551615 bytes"},
      // The JSON.
      {"not UTF-8", file_of("{\"a\xff\":1}", 0), "the header is not valid JSON at byte"},
      {"not JSON", file_of("hello   ", 0), "the header at byte 8: got \"hello   \""},
      {"cut JSON", file_of("{\"a\":{\"dtype\"", 0), "the header is not valid JSON"},
      {"trailing comma", file_of(concat("{", ok, ",}"), 8), "the header is not valid JSON"},
      {"text after JSON", file_of(concat("{", ok, "} x"), 8), "the header is not valid JSON"},
      {"array", file_of("[1,2]", 0), "the header at byte 8: got \"[1,2]\", expected an object"},
      {"byte order mark", file_of(concat("\xef\xbb\xbf{", ok, "}"), 8), "the header at byte 8"},
      {"lone surrogate", file_of(R"({"\ud800":1})", 0), "the header is not valid JSON"},
      {"deep nesting", file_of(concat("{\"a\":", repeat("[", 10000)), 0),
       "bad entry in tensor \"a\""},
      {"deep objects", file_of(repeat("{\"dtype\":", 10000), 0), "got an object"},
      {"entry is a number", file_of("{\"a\":1}", 0), "bad entry in tensor \"a\": got 1"},
      {"entry is null", file_of("{\"a\":null}", 0), "got null, expected an object"},
      {"unknown key", file_of("{\"a\":{\"dtpe\":\"F32\"}}", 0),
       "bad key in tensor \"a\": got \"dtpe\""},
      {"duplicate key", file_of(R"({"a":{"dtype":"F32","dtype":"F64"}})", 0),
       "got \"dtype\" twice"},
      {"no dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "got no dtype"},
      {"no shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "got no shape"},
      {"no offsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "got no data_offsets"},
      // Names.
      {"duplicate name", file_of(concat("{", ok, ",", ok, "}"), 8),
       "bad name in tensor \"a\": got it twice"},
      {"empty name", file_of(concat("{", entry("", "\"F32\"", "[2]", "[0,8]"), "}"), 8),
       "an empty name"},
      {"long name",
       file_of(concat("{", entry(repeat("n", 1 << 20), "\"F32\"", "[2]", "[0,8]"), "}"), 8),
       "a name that is too long"},
      {"NUL in name", file_of(concat("{", entry("a\\u0000b", "\"F32\"", "[2]", "[0,8]"), "}"), 8),
       "bad name in tensor \"a\\x00b\": got a control character"},
      {"escape in name",
       file_of(concat("{", entry("\\u001b[2J", "\"F32\"", "[2]", "[0,8]"), "}"), 8),
       "\"\\x1b[2J\""},
      // dtype.
      {"unknown dtype", file_of(one("\"F33\"", "[1]", "[0,4]"), 4),
       "unknown dtype in tensor \"w\": got \"F33\""},
      {"lower-case dtype", file_of(one("\"f32\"", "[1]", "[0,4]"), 4), "unknown dtype"},
      {"empty dtype", file_of(one("\"\"", "[1]", "[0,4]"), 4), "got \"\""},
      {"dtype is a number", file_of(one("32", "[1]", "[0,4]"), 4),
       "bad dtype in tensor \"w\": got 32"},
      // Shape.
      {"negative size", file_of(one("\"F32\"", "[-1]", "[0,4]"), 4),
       "bad shape in tensor \"w\": got -1"},
      {"fractional size", file_of(one("\"F32\"", "[1.5]", "[0,4]"), 4), "got 1.5"},
      {"exponent size", file_of(one("\"F32\"", "[1e3]", "[0,4]"), 4), "got 1e3"},
      {"nested shape", file_of(one("\"F32\"", "[[1]]", "[0,4]"), 4), "got a list"},
      {"text size", file_of(one("\"F32\"", "[\"1\"]", "[0,4]"), 4), "got \"1\""},
      {"shape is a number", file_of(one("\"F32\"", "1", "[0,4]"), 4), "expected a list of numbers"},
      {"65 dimensions", file_of(one("\"F32\"", "[1" + repeat(",1", 64) + "]", "[0,4]"), 4),
       "got more dimensions, expected at most 8"},
      {"product wraps to 4",
       file_of(one("\"U8\"", "[4194305,4194305,211106198978564]", "[0,4]"), 4),
       "the shape is too large in tensor \"w\""},
      {"product 2^64", file_of(one("\"U8\"", "[2,9223372036854775807]", "[0,8]"), 8),
       "the shape is too large"},
      {"size 2^64-1", file_of(one("\"U8\"", "[18446744073709551615]", "[0,8]"), 8),
       "got 18446744073709551615"},
      {"size over 2^64", file_of(one("\"U8\"", "[99999999999999999999]", "[0,8]"), 8),
       "got 99999999999999999999"},
      {"huge and empty",
       file_of(one("\"U8\"", "[0,9223372036854775807,9223372036854775807]", "[0,0]"), 0),
       "the shape is too large"},
      // Offsets.
      {"one offset", file_of(one("\"F32\"", "[1]", "[0]"), 4), "got 1 numbers, expected two"},
      {"no offsets listed", file_of(one("\"F32\"", "[1]", "[]"), 4), "got 0 numbers"},
      {"three offsets", file_of(one("\"F32\"", "[1]", "[0,4,8]"), 8), "got a third number"},
      {"negative offset", file_of(one("\"F32\"", "[1]", "[-4,0]"), 4), "got -4"},
      {"reversed", file_of(one("\"F32\"", "[1]", "[4,0]"), 4), "got [4, 0], expected begin <= end"},
      {"not from 0", file_of(one("\"F32\"", "[1]", "[4,8]"), 8),
       "a hole before the data in tensor \"w\": got begin 4"},
      {"hole", file_of(concat("{", ok, ",", entry("b", "\"F32\"", "[1]", "[12,16]"), "}"), 16),
       "a hole before the data in tensor \"b\": got begin 12, expected 8"},
      {"overlap", file_of(concat("{", ok, ",", entry("b", "\"F32\"", "[2]", "[4,12]"), "}"), 12),
       "an overlap in the data in tensor \"b\": got begin 4, expected 8"},
      {"same range twice",
       file_of(concat("{", ok, ",", entry("b", "\"F32\"", "[2]", "[0,8]"), "}"), 8), "an overlap"},
      {"past the end", file_of(concat("{", ok, ",", b, "}"), 8),
       "the file ends inside the data in tensor \"b\": got 8 bytes of data"},
      {"offset 2^63-1",
       file_of(one("\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]"), 8),
       "the shape is too large"},
      {"size below shape", file_of(one("\"F32\"", "[2]", "[0,4]"), 4),
       "data_offsets do not fit shape and dtype in tensor \"w\": got 4 bytes, expected 8 bytes"},
      {"size above shape", file_of(one("\"F32\"", "[1]", "[0,8]"), 8), "got 8 bytes, expected 4"},
      {"half a byte", file_of(one("\"F4\"", "[3]", "[0,1]"), 1), "expected 1.5 bytes"},
      {"trailing bytes", file_of(concat("{", ok, "}"), 8) + "PK",
       "bytes after the last tensor at byte"},
      {"data without tensors", file_of("{}", 3), "got 3 more bytes, expected the end of the file"},
      // __metadata__.
      {"metadata number", file_of(R"({"__metadata__":{"step":1}})", 0),
       "bad value of \"step\" in __metadata__: got 1, expected a string"},
      {"metadata object", file_of(R"({"__metadata__":{"a":{}}})", 0), "got an object"},
      {"metadata list", file_of(R"({"__metadata__":["a"]})", 0), "in __metadata__"},
      {"metadata key twice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
       "got key \"a\" twice"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0),
       "got __metadata__ twice"},
      // Other formats.
      {"gzip", "\x1f\x8b\x08 some compressed bytes", "not a safetensors file: got a gzip file"},
      {"zip", "PK\x03\x04 some archive of PyTorch", "got a zip archive"},
      {"pickle", "\x80\x02}q\x01(X\x06 etc. etc. etc.", "got a Python pickle"},
      {"LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
       "got a Git LFS pointer, not the data itself, expected a safetensors file; fetch"},
      {"HTML", "<!DOCTYPE html>\n<html>Not found</html>", "got an HTML page"},
  };
  for (const std::size_t lost : {1U, 2U, 4096U}) {
    std::string bytes = file_of(one("\"U8\"", "[8192]", "[0,8192]"), 8192);
    bytes.resize(bytes.size() - lost);
    rows.push_back({"last bytes missing", bytes, "the file ends inside the data in tensor \"w\""});
  }
  std::string many = "{";
  for (int i = 0; i <= 100'000; ++i) {
    many += concat(i ? "," : "", entry(concat("t", i), "\"U8\"", "[0]", "[0,0]"));
  }
  rows.push_back({"too many tensors", file_of(concat(many, "}"), 0), "more than 100000 tensors"});
  return rows;
}

TEST(Safetensors, MalformedFilesAreRefusedWithoutSideEffects) {
  const TempDirectory temp;
  const std::string path = temp.file("model.safetensors");
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const auto raw_before = allocator(kCpu).stats().reserved;
  for (const Malformed& row : malformed_files()) {
    SCOPED_TRACE(row.name);
    write_bytes(path, row.bytes);
    const auto files = snapshot(temp.path());
    const std::string text = error_of(ErrorKind::file, [&] { (void)SafetensorsFile::open(path); });
    expect_in(row.message, text);
    expect_in(path + ": ", text);
    expect_in(", expected ", text);
    expect_in("; ", text);
    EXPECT_LT(text.size(), 1000U);
    EXPECT_TRUE(same_files(snapshot(temp.path()), files));
  }
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(allocator(kCpu).stats().reserved, raw_before);
  EXPECT_TRUE(kSanitized || after.ru_maxrss - before.ru_maxrss < 64 * 1024);  // KiB
}

// Random damage to a good file: it opens, or it is refused; nothing else.
TEST(Safetensors, RandomDamageIsRefusedOrHarmless) {
  const TempDirectory temp;
  const std::string path = temp.file("model.safetensors");
  const std::string good = file_of(
      concat("{\"__metadata__\":{\"step\":\"12\"},", entry("a", "\"F32\"", "[2,3]", "[0,24]"), ",",
             entry("b", "\"BF16\"", "[4]", "[24,32]"), "}"),
      32);
  const std::string_view alphabet = "\"{}[],:0123456789-.eE\\u \0\xff";
  std::mt19937 random(11);
  int opened = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (auto n = random() % 3 + 1; n > 0; --n) {
      const std::size_t at = random() % (bytes.size() - 20);
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          bytes[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          bytes.erase(at, random() % 12 + 1);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % 100, random() % 12));
      }
    }
    write_bytes(path, bytes);
    try {
      const auto file = SafetensorsFile::open(path);
      for (const std::string& name : file.names()) {
        if (file.entry(name).dtype) (void)file.load(name);
      }
      ++opened;
    } catch (const Error& e) {
      ASSERT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::file)) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(opened, 10);
}

// A header of 100,000,001 bytes is refused by its length; a sparse file costs no disk.
TEST(Safetensors, RefusesAHugeHeader) {
  const TempDirectory temp;
  const std::string path = temp.file("huge");
  write_bytes(path, length_only(100'000'001));
  ASSERT_EQ(::truncate(path.c_str(), 200'000'000), 0);
  expect_in("the header is too long at byte 8: got 100000001 bytes, expected at most 100000000",
            error_of(ErrorKind::file, [&] { (void)SafetensorsFile::open(path); }));
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  const TempDirectory temp;
  const std::string path = temp.file("ok");
  const auto opens = [&](const std::string& header, std::size_t data) {
    write_bytes(path, file_of(header, data));
    return SafetensorsFile::open(path);
  };
  EXPECT_TRUE(opens("{}", 0).names().empty());
  EXPECT_EQ(opens(concat("  \n{", entry("a", "\"F32\"", "[2]", "[0,8]"), "}   "), 8).names().size(),
            1U);
  // Names are not paths, so one that looks like a path is only a name.
  const auto odd = opens(concat("{", entry("../../x", "\"U8\"", "[0]", "[0,0]"), ",",
                                entry("b", "\"BOOL\"", "[3]", "[0,3]"), "}"),
                         3);
  EXPECT_EQ(odd.names(), (std::vector<std::string>{"../../x", "b"}));
  EXPECT_EQ(odd.load("../../x").numel(), 0);
  EXPECT_FALSE(odd.entry("b").dtype.has_value());
  expect_in("dtype is not supported in tensor \"b\": got BOOL",
            error_of(ErrorKind::file, [&] { (void)odd.load("b"); }));
  expect_in("no tensor \"c\": got 2 others (first: \"../../x\")",
            error_of(ErrorKind::file, [&] { (void)odd.load("c"); }));
  EXPECT_EQ(opens(R"({"__metadata__":{"format":"pt"}})", 0).metadata().at("format"), "pt");
}

Tensor counted(const Shape& shape, DType dtype, double start) {
  Tensor t = Tensor::empty(shape, DType::f64);
  double* p = t.mutable_data<double>();
  std::iota(p, p + t.numel(), start);
  Tensor out = Tensor::empty(shape, dtype);
  copy(out, t);
  return out;
}

std::vector<double> values(const Tensor& t) {
  Tensor f = Tensor::empty(t.shape(), DType::f64);
  copy(f, t);
  return {f.data<double>(), f.data<double>() + f.numel()};
}

TEST(Safetensors, RoundTripsEveryTypeAndStride) {
  const TempDirectory temp;
  NamedTensors tensors;
  for (const DType dtype :
       {DType::u8, DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64}) {
    tensors.emplace_back(concat("t.", dtype), counted({3, 5}, dtype, 1));
  }
  tensors.emplace_back("scalar", counted({}, DType::f32, 7));
  tensors.emplace_back("empty", counted({0, 4}, DType::f32, 0));
  tensors.emplace_back("columns", counted({4, 6}, DType::f32, 0).transpose_view(0, 1));
  tensors.emplace_back("step", counted({9}, DType::f64, 0).slice_view(0, 1, 9, 3));
  tensors.emplace_back("expanded", counted({1, 2}, DType::f32, 0).expand_view({3, 2}));
  tensors.emplace_back("na\"me \xc3\xa9", counted({1}, DType::u8, 3));
  const Metadata metadata{{"step", "12"}, {"text", "line\nbreak"}};
  const WrittenFile written = write_safetensors(temp.file("a"), tensors, metadata);
  EXPECT_EQ(written.bytes, read_bytes(temp.file("a")).size());
  EXPECT_EQ(written.hash, hash_file(temp.file("a")));

  const auto file = SafetensorsFile::open(temp.file("a"));
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    const Tensor loaded = file.load(name);
    EXPECT_EQ(loaded.dtype(), tensor.dtype());
    EXPECT_EQ(loaded.shape(), tensor.shape());
    EXPECT_EQ(values(loaded), values(tensor));
    EXPECT_EQ(file.entry(name).begin % static_cast<std::int64_t>(size_of(tensor.dtype())), 0);
  }
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(write_safetensors(temp.file("b"), tensors, metadata).hash, written.hash);
}

TEST(Safetensors, ConvertsWhileReading) {
  const TempDirectory temp;
  constexpr std::int64_t kCount = 600'000;  // more than two pieces
  const Tensor source = counted({kCount}, DType::f32, -300'000);
  Tensor small = Tensor::empty({kCount}, DType::bf16);
  copy(small, source);
  write_safetensors(temp.file("a"),
                    {{"w", source}, {"h", small}, {"i", counted({2}, DType::i64, 0)}});
  const auto file = SafetensorsFile::open(temp.file("a"));
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const char* name : {"w", "h"}) {
      Tensor out = Tensor::full({kCount}, std::nan(""), dtype);
      Tensor expected = Tensor::empty({kCount}, dtype);
      copy(expected, *name == 'w' ? source : small);
      file.read_into(name, out);
      EXPECT_EQ(values(out), values(expected)) << dtype << name;
    }
  }
  // A strided target: every second column of a wider tensor; the others keep their values.
  Tensor wide = Tensor::full({kCount, 2}, 5.0, DType::f64);
  Tensor column = wide.as_strided({kCount}, {2}, 1);
  const auto version = wide.version();
  file.read_into("w", column);
  EXPECT_GT(wide.version(), version);
  EXPECT_EQ(values(column), values(source));
  EXPECT_EQ(wide.slice_view(0, 7, 8).slice_view(1, 0, 1).item(), 5.0);

  Tensor wrong = Tensor::empty({kCount, 1}, DType::f32);
  expect_in("wrong shape in tensor \"w\": got [600000], expected [600000, 1]",
            error_of(ErrorKind::file, [&] { file.read_into("w", wrong); }));
  Tensor ints = Tensor::empty({kCount}, DType::i32);
  expect_in("dtype does not convert in tensor \"w\": got F32, expected i32",
            error_of(ErrorKind::file, [&] { file.read_into("w", ints); }));
  Tensor narrow = Tensor::empty({2}, DType::i32);
  error_of(ErrorKind::file, [&] { file.read_into("i", narrow); });
  Tensor planned = Tensor::empty({kCount}, DType::f32, kMeta);
  file.read_into("w", planned);
}

TEST(Safetensors, WriterRefusesBeforeWriting) {
  const TempDirectory temp;
  const Tensor t = counted({2}, DType::f32, 0);
  const std::vector<std::pair<NamedTensors, Metadata>> bad{
      {{{"a", t}, {"a", t}}, {}},    {{{"", t}}, {}},
      {{{"__metadata__", t}}, {}},   {{{"a\nb", t}}, {}},
      {{{"\xff", t}}, {}},           {{{"a", Tensor()}}, {}},
      {{{"a", t}}, {{"k", "\xff"}}}, {{{"a", Tensor::empty({2}, DType::f32, kMeta)}}, {}}};
  for (const auto& [tensors, metadata] : bad) {
    error_of(ErrorKind::file,
             [&, &ts = tensors, &m = metadata] { write_safetensors(temp.file("x"), ts, m); });
  }
  EXPECT_TRUE(snapshot(temp.path()).empty());
  write_safetensors(temp.file("x"), {{"a", t}});
  const auto files = snapshot(temp.path());
  expect_in("File exists", error_of(ErrorKind::io, [&] {
              write_safetensors(temp.file("x"), {{"b", t}});
            }));
  EXPECT_TRUE(same_files(snapshot(temp.path()), files));
}

// The n-th write or sync fails with "no space": no file is left.
TEST(Safetensors, AFullDiskLeavesNoFile) {
  struct FullDisk final : SystemCalls {
    ssize_t write(int fd, const void* data, std::size_t bytes) override {
      return --left < 0 ? (errno = ENOSPC, -1) : SystemCalls::write(fd, data, bytes);
    }
    int fsync(int fd) override {
      return --left < 0 ? (errno = ENOSPC, -1) : SystemCalls::fsync(fd);
    }
    int left = 0;
  };
  const TempDirectory temp;
  const NamedTensors tensors{{"a", counted({2}, DType::f32, 0)},
                             {"b", counted({3}, DType::f32, 0)}};
  for (int n = 0; n < 5; ++n) {  // length, header, a, b, sync
    FullDisk calls;
    calls.left = n;
    FileSystem fs(calls);
    const FileSystemOverride guard(fs);
    expect_in("free some space",
              error_of(ErrorKind::io, [&] { write_safetensors(temp.file("x"), tensors); }));
    EXPECT_TRUE(snapshot(temp.path()).empty());
  }
}

// A file as the reference implementation lays it out: no blanks, the widest type first, then by
// name, the header filled up to 8 bytes. Ours writes the same bytes again, not only the same
// values.
void expect_rewritten(const std::string& sample) {
  const TempDirectory temp;
  const auto file = SafetensorsFile::open(sample);
  NamedTensors tensors;
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.load(name));
  write_safetensors(temp.file("copy"), tensors);
  EXPECT_TRUE(same_text(read_bytes(temp.file("copy")), read_bytes(sample)));
}

std::string floats(const std::vector<float>& values) {
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  const TempDirectory temp;
  std::string header = concat("{", entry("norm.batches", "\"I64\"", "[]", "[0,8]"), ",",
                              entry("conv.bias", "\"F32\"", "[2]", "[8,16]"), ",",
                              entry("conv.weight", "\"F32\"", "[2,1,3]", "[16,40]"), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  write_bytes(temp.file("reference"), file_of(header, 0) + std::string("\7\0\0\0\0\0\0\0", 8) +
                                          floats({1, -2, 3, 4, 5, 6, 7, -8}));
  const auto reference = SafetensorsFile::open(temp.file("reference"));
  EXPECT_EQ(reference.load("norm.batches").ndim(), 0);
  EXPECT_EQ(values(reference.load("norm.batches")), std::vector<double>{7});
  EXPECT_EQ(reference.entry("conv.weight").shape, (Shape{2, 1, 3}));
  EXPECT_EQ(values(reference.load("conv.weight")), (std::vector<double>{3, 4, 5, 6, 7, -8}));
  expect_rewritten(temp.file("reference"));

  // Python's json.dumps: blanks, keys in another order, escapes; tensors neither in the order of
  // their data nor of their names, metadata last, a header of odd length.
  header = R"({"z\u00e9": {"data_offsets": [8, 12], "shape": [1], "dtype": "F32"},
 "a": {"shape": [2, 1], "dtype": "F32", "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}} )";
  if (header.size() % 2 == 0) header += ' ';
  write_bytes(temp.file("python"), file_of(header, 0) + floats({0.5F, -1.5F, 9}));
  const auto python = SafetensorsFile::open(temp.file("python"));
  EXPECT_EQ(python.metadata().at("format"), "pt");
  EXPECT_EQ(python.entry("a").shape, (Shape{2, 1}));
  EXPECT_EQ(values(python.load("a")), (std::vector<double>{0.5, -1.5}));
  EXPECT_EQ(values(python.load("z\xc3\xa9")), std::vector<double>{9});

  const char* root = std::getenv("DUET_TEST_DATA");
  if (root == nullptr) return;
  const std::string models = concat(root, "/models");
  const std::string sample = models + "/reader_samples/multi_layer.safetensors";
  const auto layers = SafetensorsFile::open(sample);
  EXPECT_EQ(layers.names().size(), 9U);
  EXPECT_EQ(layers.entry("conv1.weight").shape, (Shape{4, 3, 3, 3}));
  EXPECT_EQ(layers.load("norm1.num_batches_tracked").ndim(), 0);
  expect_rewritten(sample);
  const auto gpt2 = SafetensorsFile::open(models + "/tiny-random-gpt2/model.safetensors");
  EXPECT_EQ(gpt2.metadata().at("format"), "pt");
  EXPECT_EQ(gpt2.entry("transformer.wte.weight").shape, (Shape{1000, 32}));
  for (const std::string& name : gpt2.names()) {
    for (const double v : values(gpt2.load(name))) ASSERT_TRUE(std::isfinite(v)) << name;
  }
}

}  // namespace
}  // namespace duet::test
