// describe_magic(): names the format of a file that is not what a reader expected.
#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/file_system.h"

namespace duet {
namespace {

using std::string_view_literals::operator""sv;

struct Signature {
  std::string_view bytes;
  Magic magic;
};

constexpr std::string_view kUnpack = "decompress it first";
constexpr std::string_view kUtf8 = "convert it to UTF-8 first (iconv -t UTF-8)";
constexpr std::string_view kPickle =
    "export it to safetensors first, in the program that wrote it (pickles can run code, so Duet "
    "never reads them)";

constexpr std::array kSignatures{
    Signature{"\x1f\x8b"sv, {"a gzip file", kUnpack}},
    Signature{"BZh"sv, {"a bzip2 file", kUnpack}},
    Signature{"\xfd\x37zXZ\0"sv, {"an xz file", kUnpack}},
    Signature{"\x28\xb5\x2f\xfd"sv, {"a zstd file", kUnpack}},
    Signature{"7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", "unpack it first"}},
    Signature{"PK\x03\x04"sv,
              {"a zip archive (PyTorch's .pt and .bin files are zips)",
               "unpack it first; weights: export them to safetensors"}},
    Signature{"\x80\x02"sv, {"a Python pickle", kPickle}},
    Signature{"\x80\x03"sv, {"a Python pickle", kPickle}},
    Signature{"\x80\x04"sv, {"a Python pickle", kPickle}},
    Signature{"\x80\x05"sv, {"a Python pickle", kPickle}},
    Signature{"version https://git-lfs"sv,
              {"a Git LFS pointer, not the data itself", "fetch the data with git lfs pull"}},
    Signature{"\xff\xfe\0\0"sv, {"UTF-32 text", kUtf8}},
    Signature{"\0\0\xfe\xff"sv, {"UTF-32 text", kUtf8}},
    Signature{"\xff\xfe"sv, {"UTF-16 text", kUtf8}},
    Signature{"\xfe\xff"sv, {"UTF-16 text", kUtf8}},
    Signature{"GGUF"sv, {"a GGUF file", "use the safetensors version of the model"}},
    Signature{"\x89HDF"sv, {"an HDF5 file", "export it to safetensors first"}},
    Signature{"\x93NUMPY"sv, {"a NumPy array", "export it to safetensors first"}},
    Signature{"PAR1"sv, {"a Parquet file", "extract its text column first"}},
    Signature{"%PDF"sv, {"a PDF", "extract its text first"}},
    Signature{"\x7f"
              "ELF"sv,
              {"a program", "give the path of a data file"}},
};

// An HTML page: often what a failed download leaves under the data's name.
bool is_html(std::string_view bytes) {
  if (bytes.substr(0, 3) == "\xef\xbb\xbf") bytes.remove_prefix(3);
  const std::size_t start = bytes.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  std::string text(bytes.substr(start, 14));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "<!doctype html" || text.compare(0, 5, "<html") == 0;
}

}  // namespace

std::optional<Magic> describe_magic(std::string_view bytes) {
  for (const Signature& s : kSignatures) {
    if (bytes.substr(0, s.bytes.size()) == s.bytes) return s.magic;
  }
  if (bytes.size() >= 262 && bytes.substr(257, 5) == "ustar") {
    return Magic{"a tar archive", "unpack it first (tar -xf)"};
  }
  if (is_html(bytes)) return Magic{"an HTML page", "download the file again, by its raw link"};
  return std::nullopt;
}

bool looks_like_text(std::string_view bytes) {
  constexpr std::size_t kFewest = 8;  // fewer tell nothing
  return bytes.size() >= kFewest && std::all_of(bytes.begin(), bytes.end(), [](char c) {
           const auto b = static_cast<unsigned char>(c);
           return (b >= 0x20 && b != 0x7f && b < 0xf8) || b == '\t' || b == '\n' || b == '\r' ||
                  b == '\f';
         });
}

}  // namespace duet
