#include "train/manifest.h"

#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "train/json_fields.h"

namespace duet {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kFormatVersion = 1;
constexpr std::int64_t kMaxManifestBytes = 1 << 20;

// Of everything but the hash itself.
std::string own_hash(Json tree) {
  tree.erase("xxh3");
  return hash_bytes(tree.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"xxh3", file.hash}};
  }
  Json tree = {{"format", "duet-manifest"},
               {"format_version", kFormatVersion},
               {"run_id", manifest.run_id},
               {"step", manifest.step},
               {"files", files}};
  tree["xxh3"] = own_hash(tree);
  return tree.dump(1) + "\n";
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = directory + "/manifest.json";
  check(file_system().exists(path), ErrorKind::file, path,
        ": missing: the checkpoint is damaged or incomplete: got a checkpoint's directory without "
        "it, expected sizes and hashes of its files; use another checkpoint of the run");
  const Json tree = parse_json(file_system().read_file(path, kMaxManifestBytes), path);
  const JsonFields fields(tree, path);
  if (fields.text("format") != "duet-manifest") {
    fields.fail("format", fields.at("format"), "\"duet-manifest\"");
  }
  fields.check_version(kFormatVersion);
  const std::string hash = own_hash(tree);
  check(fields.text("xxh3") == hash, ErrorKind::file, path, ": its own hash is wrong: expected ",
        printable(fields.text("xxh3")), ", found ", hash, "; the file was changed");
  Manifest manifest;
  manifest.run_id = fields.word("run_id");
  manifest.step = fields.integer("step", 0, kMostSteps);
  const JsonFields files = fields.object("files");
  for (const auto& [name, value] : fields.at("files").items()) {
    check(is_file_name(name) && name[0] != '.', ErrorKind::file, path, ": \"", printable(name),
          "\" is not the name of a file in the checkpoint");
    const JsonFields file = files.object(name.c_str());
    manifest.files[name] = {file.bytes("bytes"), file.text("xxh3")};
  }
  return manifest;
}

void verify_file(const Manifest& manifest, const std::string& directory, const std::string& name) {
  const auto listed = manifest.files.find(name);
  check(listed != manifest.files.end(), ErrorKind::file, directory, "/manifest.json: it lists no ",
        name);
  const WrittenFile& file = listed->second;
  const std::string path = concat(directory, "/", name);
  check(file_system().type(path) == FileType::regular, ErrorKind::file, path,
        ": the manifest lists it, but there is no such file");
  const auto bytes = static_cast<std::uint64_t>(file_system().file_size(path));
  check(bytes == file.bytes, ErrorKind::file, path, ": the size is wrong: expected ", file.bytes,
        " bytes, found ", bytes);
  const std::string hash = hash_file(path);
  check(hash == file.hash, ErrorKind::file, path, ": the content is damaged: expected hash ",
        printable(file.hash), ", found ", hash);
}

}  // namespace duet
