// experiment.json: what an experiment planned, for a restart and for the report.
#include "runtime/file_system.h"
#include "train/json_fields.h"
#include "train/lab/experiment.h"

namespace duet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormatVersion = 1;
constexpr std::int64_t kRecordLimit = std::int64_t{64} << 20;

const nlohmann::json& list_at(const JsonFields& fields, const char* key) {
  const nlohmann::json& list = fields.at(key);
  if (!list.is_array()) fields.fail(key, list, "a list");
  return list;
}

std::vector<std::string> texts(const JsonFields& fields, const char* key) {
  std::vector<std::string> out;
  for (const nlohmann::json& item : list_at(fields, key)) {
    if (!item.is_string()) fields.fail(key, item, "a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

}  // namespace

std::string run_name(const ExperimentArm& arm, std::int64_t seed) {
  return concat(arm.name, "-seed", seed);
}

std::string run_directory(const ExperimentRecord& record, std::size_t arm, std::int64_t seed) {
  return concat(record.directory, "/runs/", run_name(record.arms[arm], seed));
}

void write_record(const ExperimentRecord& record) {
  Json tree;
  tree["format"] = "duet-experiment";
  tree["format_version"] = kFormatVersion;
  tree["command_line"] = record.command_line;
  tree["seeds"] = record.seeds;
  tree["common"] = record.common;
  tree["unpaired_keys"] = record.unpaired_keys;
  tree["arms"] = Json::array();
  for (const ExperimentArm& arm : record.arms) {
    tree["arms"].push_back({{"name", arm.name},
                            {"changes", arm.changes},
                            {"parameters", arm.parameters},
                            {"max_iters", arm.max_iters}});
  }
  tree["files"] = Json::array();
  for (const FileIdentity& file : record.files) {
    tree["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"xxh3", file.hash}});
  }
  file_system().replace_file(concat(record.directory, "/", kExperimentFile),
                             tree.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

ExperimentRecord read_record(const std::string& directory) {
  const std::string path = concat(directory, "/", kExperimentFile);
  const nlohmann::json tree =
      parse_json(file_system().read_file(path, kRecordLimit), printable(path, 4096));
  const JsonFields fields(tree, printable(path, 4096));
  if (fields.text("format") != "duet-experiment") {
    fields.fail("format", fields.at("format"), "\"duet-experiment\"");
  }
  fields.check_version(kFormatVersion);
  ExperimentRecord out;
  out.directory = directory;
  out.command_line = texts(fields, "command_line");
  out.common = fields.text("common");
  out.unpaired_keys = texts(fields, "unpaired_keys");
  for (const nlohmann::json& seed : list_at(fields, "seeds")) {
    if (!seed.is_number_unsigned() || seed.get<std::int64_t>() < 0) {
      fields.fail("seeds", seed, "a list of integers from 0 to 2^63-1");
    }
    out.seeds.push_back(seed.get<std::int64_t>());
  }
  for (const nlohmann::json& item : list_at(fields, "arms")) {
    const JsonFields arm(item, printable(path, 4096), "arms.");
    const std::string name = arm.text("name");
    if (!is_file_name(name) || name[0] == '.') arm.fail("name", item["name"], "a file name");
    out.arms.push_back({name, arm.text("changes"), arm.integer("parameters", 0),
                        arm.integer("max_iters", 0, kMostSteps)});
  }
  for (const nlohmann::json& item : list_at(fields, "files")) {
    const JsonFields file(item, printable(path, 4096), "files.");
    out.files.push_back({file.text("path"), file.bytes("bytes"), file.text("xxh3")});
  }
  check(!out.arms.empty() && !out.seeds.empty(), ErrorKind::file, printable(path, 4096),
        ": no arms or no seeds; the file is damaged");
  check(out.arms.size() <= kMostRuns / out.seeds.size(), ErrorKind::file, printable(path, 4096),
        ": too many runs: got ", out.arms.size(), " arms x ", out.seeds.size(),
        " seeds, expected at most ", kMostRuns, "; the file is damaged");
  return out;
}

}  // namespace duet
