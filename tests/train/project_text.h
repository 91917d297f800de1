// A text for tests that learn: the real one of DUET_TEST_DATA, or the project's own sources.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/runtime/temp_directory.h"

namespace duet::test {

// All sources of the rooms, without indentation: its runs of blanks would be learned first, and
// prove little.
inline std::string project_text() {
  std::vector<std::filesystem::path> files;
  for (const char* room : {"runtime", "autograd", "ops", "models", "train", "tools"}) {
    const std::filesystem::path folder = std::filesystem::path(DUET_SOURCE_DIR) / room;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string kind = entry.path().extension().string();
      if (kind == ".h" || kind == ".cpp" || kind == ".cu") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const std::filesystem::path& file : files) {
    bool indented = true;
    for (const char c : read_bytes(file.string())) {
      indented = c == '\n' || (indented && c == ' ');
      if (!indented || c == '\n') text += c;
    }
  }
  return text;
}

inline bool has_real_text() { return std::getenv("DUET_TEST_DATA") != nullptr; }

// The path of `name` in DUET_TEST_DATA; without it, of the project's text in `directory`.
inline std::string test_text(const TempDirectory& directory, const std::string& name) {
  if (const char* data = std::getenv("DUET_TEST_DATA")) return std::string(data) + "/" + name;
  write_bytes(directory.file("project.txt"), project_text());
  return directory.file("project.txt");
}

}  // namespace duet::test
