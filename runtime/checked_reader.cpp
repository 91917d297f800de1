#include "runtime/checked_reader.h"

namespace duet {

CheckedReader::CheckedReader(const std::string& path, std::string format)
    : file_(file_system().open(path)), format_(std::move(format)) {
  if (size() == 0) fail("the file is empty", "", "0 bytes", "a " + format_);
}

std::uint64_t CheckedReader::bytes_after(std::int64_t offset) const {
  return offset < size() ? static_cast<std::uint64_t>(size() - offset) : 0;
}

void CheckedReader::read(std::int64_t offset, void* out, std::int64_t bytes,
                         std::string_view what) const {
  if (offset < 0 || bytes < 0 || bytes > size() || offset > size() - bytes) {
    fail(concat("the file ends inside ", what), concat("at byte ", offset),
         concat(size(), " bytes in all"), concat(bytes, " bytes from there"));
  }
  file_.read(offset, out, bytes);
}

std::string CheckedReader::text(std::int64_t offset, std::uint64_t bytes, std::int64_t max_bytes,
                                std::string_view what) const {
  const std::string where = concat("at byte ", offset);
  if (bytes > bytes_after(offset)) {
    fail(concat(what, " is longer than the file"), where, concat(bytes, " bytes"),
         concat("at most ", bytes_after(offset)));
  }
  if (bytes > static_cast<std::uint64_t>(max_bytes)) {
    fail(concat(what, " is too long"), where, concat(bytes, " bytes"),
         concat("at most ", max_bytes));
  }
  std::string out(static_cast<std::size_t>(bytes), '\0');
  file_.read(offset, out.data(), static_cast<std::int64_t>(bytes));
  return out;
}

void CheckedReader::fail_text(std::string_view what, std::string_view where, const std::string& got,
                              const std::string& expected, std::string_view advice) const {
  const std::string shown = printable(path(), 400);
  if (const std::optional<Magic> magic = describe_magic(file_.head())) {
    throw Error(ErrorKind::file, concat(shown, ": not a ", format_, ": got ", magic->what,
                                        ", expected a ", format_, "; ", magic->advice));
  }
  check(!looks_like_text(file_.head(64)), ErrorKind::file, shown, ": not a ", format_,
        ": got a text file that begins with ", in_quotes(file_.head(24)), ", expected a ", format_,
        "; check the path");
  throw Error(
      ErrorKind::file,
      concat(shown, ": ", what, where.empty() ? "" : " ", where, ": got ", got, ", expected ",
             expected, "; ",
             advice.empty() ? "the file is damaged or of another kind: fetch or write it again"
                            : advice));
}

}  // namespace duet
