#include "train/saved_paths.h"

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "train/command_line.h"
#include "train/json_text.h"

namespace duet {
namespace {

// Where the run last was at work, from its env.json; empty if that does not say.
std::string saved_directory(const std::string& out_dir) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 20;
  const std::string path = out_dir + "/env.json";
  if (!file_system().exists(path)) return "";
  const auto tree = try_json(file_system().read_file(path, kMostBytes));
  if (!tree || !tree->is_object() || !tree->contains("directory")) return "";
  const auto& directory = (*tree)["directory"];
  return directory.is_string() ? directory.get<std::string>() : "";
}

}  // namespace

void check_saved_paths(const ResolvedConfig& config, const std::vector<std::string>& arguments) {
  const RunConfig& run = config.run;
  for (const auto& [key, path] : {std::pair("data", run.data), std::pair("val_data", run.val_data),
                                  std::pair("tokenizer", run.tokenizer)}) {
    const bool none = path.empty() || (path == "byte" && std::string_view(key) == "tokenizer");
    if (none || config.source(key) != ConfigSource::saved || file_system().exists(path)) continue;
    std::vector<std::string> command = {"train"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const std::string directory = path.front() == '/' ? "" : saved_directory(run.out_dir);
    const std::string whole = concat(directory, "/", path);
    const bool there = !directory.empty() && file_system().exists(whole);
    command.insert(command.end(), {concat("--", key), there ? whole : "PATH"});
    throw Error(ErrorKind::file,
                concat(printable(run.out_dir, 400), "/config.toml: ", key, " is not there: got ",
                       printable(path, 400),
                       directory.empty() ? "" : ", relative to " + printable(directory, 400),
                       ", expected a file; say where it is: ", advised(command)));
  }
}

}  // namespace duet
