// duet op new: writes the skeleton of an op into the source tree: its file or folder, its line in
// ops/ops.h and its row in the op table. It builds at once; its check fails until the maths is in.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/printable.h"
#include "tools/flags.h"
#include "tools/op_commands.h"
#include "tools/op_templates.h"
#include "tools/output.h"
#include "train/command_line.h"

namespace duet {
namespace {

constexpr std::int64_t kMaxSource = 1 << 20;
constexpr std::size_t kMaxName = 40;
constexpr std::size_t kMaxSays = 90;  // with "// " in a line of 100 columns
constexpr const char* kSaysNothing = "What it computes, in one line.";
constexpr const char* kOps = "ops/ops.h";
constexpr const char* kTable = "tests/ops/op_cases.h";

constexpr std::array kKeywords{
    "alignas",      "alignof",     "and",           "and_eq",       "asm",
    "auto",         "bitand",      "bitor",         "bool",         "break",
    "case",         "catch",       "char",          "class",        "co_await",
    "co_return",    "co_yield",    "compl",         "concept",      "const",
    "const_cast",   "consteval",   "constexpr",     "constinit",    "continue",
    "decltype",     "default",     "delete",        "do",           "double",
    "dynamic_cast", "else",        "enum",          "explicit",     "export",
    "extern",       "false",       "float",         "for",          "friend",
    "goto",         "if",          "inline",        "int",          "long",
    "main",         "mutable",     "namespace",     "new",          "noexcept",
    "not",          "not_eq",      "nullptr",       "operator",     "or",
    "or_eq",        "private",     "protected",     "public",       "register",
    "requires",     "return",      "short",         "signed",       "sizeof",
    "static",       "static_cast", "static_assert", "struct",       "switch",
    "template",     "this",        "throw",         "thread_local", "true",
    "try",          "typedef",     "typeid",        "typename",     "union",
    "unsigned",     "using",       "virtual",       "void",         "volatile",
    "wchar_t",      "while",       "xor",           "xor_eq",       "char8_t",
    "char16_t",     "char32_t",    "std",           "duet",         "reinterpret_cast"};

// Lower-case macros of the compiler and of the headers that sources of the project include.
constexpr std::array kMacros{"alloca",  "assert",  "be16toh",  "be32toh",   "be64toh", "errno",
                             "htobe16", "htobe32", "htobe64",  "htole16",   "htole32", "htole64",
                             "i386",    "le16toh", "le32toh",  "le64toh",   "linux",   "major",
                             "makedev", "minor",   "offsetof", "stderr",    "stdin",   "stdout",
                             "setjmp",  "strdupa", "strndupa", "sigsetjmp", "unix",    "va_arg",
                             "va_copy", "va_end",  "va_start"};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string without_comments(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size() - 1);
    out += text[i];
  }
  return out;
}

// Whether a file declares `word` as a function, or `type` as a type, that a new one would meet. One
// of dual numbers meets none; where no skeleton includes it, only one of tensors does: a call would
// fit both.
bool declares(const std::string& source, bool included, const std::string& word,
              const std::string& type) {
  const std::string text = without_comments(source);
  const auto whole = [&](std::size_t at, std::size_t size) {
    return (at == 0 || !is_word(text[at - 1])) &&
           (at + size == text.size() || !is_word(text[at + size]));
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool qualified =
        at > 0 && (text[at - 1] == ':' || text[at - 1] == '.' || text[at - 1] == '>');
    // A name after a space and before a parenthesis, at the start of a line: a declaration.
    const std::size_t line = text.rfind('\n', at) + 1;  // npos + 1 = 0
    if (whole(at, word.size()) && !qualified && at > line && text[line] != ' ' &&
        text[at + word.size()] == '(') {
      const std::string first = text.substr(at + word.size() + 1, 12);
      if (included ? !first.starts_with("Dual<")
                   : first.starts_with("const Tensor") || first.starts_with("Tensor ")) {
        return true;
      }
    }
  }
  if (!included) return false;
  for (const char* kind : {"struct ", "class ", "using ", "enum class "}) {
    const std::string wanted = kind + type;
    for (std::size_t at = text.find(wanted); at != std::string::npos;
         at = text.find(wanted, at + 1)) {
      if (whole(at, wanted.size())) return true;
    }
  }
  return false;
}

std::string camel_case(const std::string& name) {
  std::string out;
  bool upper = true;
  for (const char c : name) {
    if (c != '_') out += upper ? static_cast<char>(c - ('a' <= c && c <= 'z' ? 'a' - 'A' : 0)) : c;
    upper = c == '_';
  }
  return out;
}

void check_says(const std::string& says) {
  bool one_line = !says.empty() && says.back() != '\\';  // it would go on in the next line
  for (const char c : says) one_line = one_line && static_cast<unsigned char>(c) >= ' ';
  check(one_line && says.size() <= kMaxSays, ErrorKind::usage, "duet op new: --says: got ",
        in_quotes(says), ", expected one line of 1 to ", kMaxSays,
        " characters that does not end in \\, like \"c tanh(x / c), c learnable\"");
}

// What to type before `command` so that it runs in the source tree.
std::string there(const std::string& root) {
  std::error_code failed;
  if (std::filesystem::equivalent(root, std::filesystem::current_path(failed), failed)) return "";
  return concat("cd ", shell_word(root), " && ");
}

void check_name(const std::string& name) {
  bool ok = !name.empty() && name.front() >= 'a' && name.front() <= 'z' && name.back() != '_';
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    ok = ok && (letter || (c == '_' && name[i - 1] != '_'));
  }
  check(ok, ErrorKind::usage, "duet op new: the name is not snake_case: got ", in_quotes(name),
        ", expected lower-case words like log_sum_exp");
  check(name.size() > 1, ErrorKind::usage, "duet op new: the name is too short: got ",
        in_quotes(name),
        ", which the skeleton uses for its operands; expected two letters or more");
  check(name.size() <= kMaxName, ErrorKind::usage, "duet op new: the name is too long: got ",
        name.size(), " characters, expected at most ", kMaxName);
  for (const char* word : kMacros) {
    check(name != word, ErrorKind::usage, "duet op new: the name is taken by the C library: got ",
          in_quotes(name), ", which is a macro in its headers, or with GNU extensions; try ", name,
          "_op");
  }
  for (const char* word : kKeywords) {
    check(name != word, ErrorKind::usage, "duet op new: the name is taken by C++: got ",
          in_quotes(name), ", expected one that may be a function's; try ", name, "_op");
  }
}

// The directory `start` or the nearest one above that holds Duet's sources.
std::string source_root(const std::string& given) {
  const FileSystem& files = file_system();
  const auto is_root = [&](const std::string& directory) {
    return files.exists(directory + "/CMakeLists.txt") && files.exists(directory + "/" + kOps) &&
           files.exists(directory + "/" + kTable);
  };
  if (!given.empty()) {
    check(is_root(given), ErrorKind::usage, "duet op new: --root is no source tree: got ",
          in_quotes(given), ", expected a directory with CMakeLists.txt, ", kOps, " and ", kTable);
    return given;
  }
  std::error_code failed;
  std::filesystem::path directory = std::filesystem::current_path(failed);
  for (; !failed && !directory.empty(); directory = directory.parent_path()) {
    if (is_root(directory.string())) return directory.string();
    if (directory == directory.root_path()) break;
  }
  throw Error(ErrorKind::usage, concat("duet op new: this is no source tree: got ",
                                       in_quotes(std::filesystem::current_path(failed).string()),
                                       ", expected one with CMakeLists.txt, ", kOps, " and ",
                                       kTable, "; go there, or pass --root DIR"));
}

// Refuses a name that a file, a row or a declaration has already.
void check_free(const std::string& root, const std::string& name) {
  const FileSystem& files = file_system();
  for (const std::string& path : {"ops/pointwise/" + name + ".cu", "ops/pointwise/" + name + ".h",
                                  "ops/" + name, "tests/ops/" + name + "_cases.cpp"}) {
    check(files.type(concat(root, "/", path)) == FileType::missing, ErrorKind::usage,
          "duet op new: the op exists: got ", in_quotes(name), ", but there is ", path,
          "; choose another name, or, if it is left over, delete it and the op's lines in ", kOps,
          " and ", kTable, "; nothing was written");
  }
  for (const std::string room :
       {"runtime", "autograd", "ops", "models", "train", "tools", "tests"}) {
    const bool included = room == "runtime" || room == "autograd" || room == "ops";
    const std::string folder = concat(root, "/", room);
    if (!files.is_directory(folder)) continue;
    std::vector<std::filesystem::path> sources;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string kind = entry.path().extension().string();
      if (kind == ".h" || kind == ".cpp" || kind == ".cu") sources.push_back(entry.path());
    }
    // Headers first: what is declared for all is what a user looks for. Then in order of names, for
    // the system lists them in its own.
    std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) {
      const bool a_header = a.extension() == ".h", b_header = b.extension() == ".h";
      return a_header != b_header ? a_header : a < b;
    });
    for (const std::filesystem::path& source : sources) {
      const std::string kind = source.extension().string();
      const std::string text = files.read_file(source.string(), kMaxSource);
      check(!declares(text, included && kind == ".h", name, camel_case(name)), ErrorKind::usage,
            "duet op new: the name is taken: got ", in_quotes(name), ", which is declared in ",
            std::filesystem::relative(source, root).string(),
            "; choose another name, nothing was written");
    }
  }
  for (const std::string& file : files.list_directory(root + "/tests/ops")) {
    if (!file.ends_with("_cases.cpp")) continue;
    const std::string text = files.read_file(concat(root, "/tests/ops/", file), kMaxSource);
    check(text.find(concat('"', name, '"')) == std::string::npos, ErrorKind::usage,
          "duet op new: the name is taken: got ", in_quotes(name), ", which is a row of tests/ops/",
          file, "; choose another name, nothing was written");
  }
}

// `text` with `line` inserted where the first line that begins with `end` stands, searching from
// the line that begins with `begin`.
std::string with_line_before(const std::string& path, const std::string& text,
                             const std::string& begin, const std::string& end,
                             const std::string& line) {
  const std::size_t from = ("\n" + text).find("\n" + begin);
  const std::size_t at = from == std::string::npos ? from : text.find("\n" + end, from);
  check(at != std::string::npos, ErrorKind::file, path, ": no place for the new op: got no ",
        in_quotes(end), " after ", in_quotes(begin),
        ", expected what the project's own file has; nothing was written");
  return text.substr(0, at + 1) + line + text.substr(at + 1);
}

// New files and changed ones, all or none.
struct Change {
  std::string path, text, before;  // `before` is empty for a new file
};

void write_all(const std::string& root, const std::vector<Change>& changes) {
  const FileSystem& files = file_system();
  std::vector<std::string> made, created;
  std::size_t begun = 0;
  try {
    for (const Change& change : changes) {
      const std::string path = root + "/" + change.path;
      ++begun;
      if (!change.before.empty()) {
        files.replace_file(path, change.text);
        continue;
      }
      for (std::string& directory :
           files.make_directories(std::filesystem::path(path).parent_path().string())) {
        made.push_back(std::move(directory));
      }
      FileWriter out = files.create(path);  // throws if the file exists
      created.push_back(path);
      out.write(change.text);
      out.close();
    }
  } catch (const Error&) {
    for (std::size_t i = 0; i < begun; ++i) {
      const std::string path = root + "/" + changes[i].path;
      if (changes[i].before.empty()) continue;
      if (files.read_file(path, kMaxSource) != changes[i].before) {
        files.replace_file(path, changes[i].before);
      }
    }
    for (const std::string& path : created) files.remove_file(path);
    for (auto directory = made.rbegin(); directory != made.rend(); ++directory) {
      files.remove_directory(*directory);
    }
    throw;
  }
}

// Where lines break depends on the name's length: clang-format, where there is one, breaks them as
// tools/check_format.sh wants it. Without one they are as they stand in op_templates.h.
void format_new_files(const std::string& root, const std::vector<Change>& changes) {
  std::vector<std::string> words = {"clang-format", "-i", "--style=file", "--fallback-style=none"};
  for (const Change& change : changes) {
    if (change.before.empty()) words.push_back(root + "/" + change.path);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawnp(&child, words[0].c_str(), nullptr, nullptr, arguments.data(), environ) == 0) {
    ::waitpid(child, nullptr, 0);
  }
}

std::vector<Change> skeleton(const std::string& root, const std::string& name, bool kernels,
                             bool two, const std::string& says) {
  const std::string type = camel_case(name);
  const auto filled = [&](std::string_view form) { return fill_template(form, name, type, says); };
  const auto changed = [&](const std::string& path, auto&&... edits) {
    const std::string before = file_system().read_file(root + "/" + path, kMaxSource);
    check(before.find("\r\n") == std::string::npos, ErrorKind::file, path,
          " has CRLF line ends: got \\r\\n, expected \\n; convert it (sed -i 's/\\r$//' ", path,
          "), nothing was written");
    std::string text = before;
    ((text = edits(path, text)), ...);
    return Change{path, text, before};
  };
  const auto insert = [](const std::string& begin, const std::string& end,
                         const std::string& line) {
    return [=](const std::string& path, const std::string& text) {
      return with_line_before(path, text, begin, end, line);
    };
  };
  std::vector<Change> changes;
  if (kernels) {
    const std::string folder = "ops/" + name + "/" + name;
    changes = {{folder + ".h", filled(kKernelsHeader), ""},
               {folder + ".cpp", filled(kKernelsOp), ""},
               {folder + "_cpu.cpp", filled(kKernelsCpu), ""},
               {folder + ".cu", filled(kKernelsCuda), ""}};
  } else {
    changes = {{"ops/pointwise/" + name + ".cu", filled(two ? kBinary : kUnary), ""}};
  }
  changes.push_back({"tests/ops/" + name + "_cases.cpp",
                     filled(kernels ? kKernelsRow : (two ? kBinaryRow : kUnaryRow)), ""});
  changes.push_back(
      changed(kOps, insert(kernels ? "// --- Rows" : "// --- Pointwise", "\n",
                           filled(kernels ? kRowsLine : (two ? kBinaryLine : kUnaryLine)))));
  changes.push_back(changed(
      kTable, insert("std::vector<OpCase> ", "\n", "std::vector<OpCase> " + name + "_cases();\n"),
      insert("    for (auto family : {", "         }) {", "             " + name + "_cases,\n")));
  return changes;
}

}  // namespace

int run_op_new(const Arguments& arguments) {
  std::string name, root, says = kSaysNothing;
  bool pointwise = false, kernels = false;
  std::int64_t inputs = 1;
  Flags flags("duet op new", "NAME --pointwise | --kernels",
              "the skeleton of an op: its files, its line in ops/ops.h, its row in the op table");
  flags.positional(&name, "NAME", /*required=*/true);
  flags.toggle("pointwise", &pointwise, "one file: a scalar function and its derivative");
  flags.toggle("kernels", &kernels,
               "a folder: forward, backward, and kernels for CPU and CUDA, row by row");
  flags.integer("inputs", &inputs, 1, 2, "of --pointwise: 2 take two operands that broadcast");
  flags.text("says", &says, "TEXT", "what it computes, in one line: the comment in ops/ops.h");
  flags.text("root", &root, "DIR", "the source tree; default: this directory or one above");
  if (!flags.parse(arguments)) return 0;
  check(pointwise != kernels, ErrorKind::usage, "duet op new: got ",
        pointwise ? "both --pointwise and --kernels" : "neither --pointwise nor --kernels",
        ", expected one of them; see duet op new --help");
  check(inputs == 1 || pointwise, ErrorKind::usage,
        "duet op new: --inputs is for --pointwise: got it with --kernels; change the signature in "
        "the skeleton instead");
  check_name(name);
  check_says(says);
  root = source_root(root);
  check_free(root, name);
  const std::vector<Change> changes = skeleton(root, name, kernels, inputs == 2, says);
  write_all(root, changes);
  format_new_files(root, changes);

  std::string out;
  for (const Change& change : changes) {
    out += concat(change.before.empty() ? "wrote   " : "changed ", change.path, "\n");
  }
  const std::string maths = kernels ? concat("forward_row and backward_row in ops/", name, "/",
                                             name, "_cpu.cpp and ", name, ".cu")
                            : inputs == 2 ? concat("f, da and db in ops/pointwise/", name, ".cu")
                                          : concat("f and df in ops/pointwise/", name, ".cu");
  out += concat("\nfill in  ", maths, "; delete the line that throws\n",
                "         the oracle in tests/ops/", name, "_cases.cpp\n",
                says == kSaysNothing
                    ? concat("         what it computes, in ", kOps,
                             ", before the first build: nearly every file includes it\n")
                    : std::string(),
                "format   ", there(root), "clang-format -i ",
                kernels ? concat("ops/", name, "/*") : concat("ops/pointwise/", name, ".cu"),
                " tests/ops/", name, "_cases.cpp\n", "then     ", there(root),
                "cmake --build build --target duet && build/duet op check ", name, "\n");
  write_out(out);
  return 0;
}

}  // namespace duet
