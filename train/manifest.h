// manifest.json: which files a checkpoint has, with sizes and hashes. Written last; without a valid
// one there is no checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/safetensors.h"

namespace duet {

struct Manifest {
  std::int64_t step = 0;
  std::string run_id;
  std::map<std::string, WrittenFile> files;
};

std::string to_json(const Manifest& manifest);
// directory/manifest.json, checked against its own hash. Throws Error(file).
Manifest read_manifest(const std::string& directory);
// Reads the named file, which the manifest must list, and compares size and hash. Throws
// Error(file) with expected and found.
void verify_file(const Manifest& manifest, const std::string& directory, const std::string& name);

}  // namespace duet
