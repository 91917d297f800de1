// RunDirectory: out_dir while a run owns it. Locked against a second run, and the place of its
// files. A run that ends before it has anything to keep leaves no trace.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/file_system.h"

namespace duet {

class RunDirectory {
 public:
  // Makes out_dir if missing and locks it until this object goes. Throws Error(usage) naming the
  // holder when another run has it, Error(io) when it cannot be written.
  explicit RunDirectory(const std::string& out_dir);
  // Unless keep() was called: what was made here goes, what was overwritten comes back.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  void keep() { kept_ = true; }
  std::string path(const std::string& name) const { return out_dir_ + "/" + name; }
  // Whole or not at all; left alone if it already has this content.
  void write(const std::string& name, const std::string& content);
  // Fine if it exists; a link to one is refused.
  void make_directory(const std::string& name);
  // Brings the names of out_dir and of what is in it to the disk, whoever made them: a process that
  // was killed may have got no further.
  void sync() const;
  // Removes what a killed process left here of files that it was about to replace.
  void remove_leftovers();

 private:
  void make(const std::string& directory);
  void remember(const std::string& file);
  void undo() noexcept;

  std::string out_dir_;
  bool kept_ = false;
  std::vector<std::string> made_directories_;  // outermost first
  // Files with what they held before; nothing: they did not exist.
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
  FileLock lock_;
};

// Throws Error(usage) where out_dir has a file that a run would replace and that no run wrote: it
// is the user's.
void refuse_foreign_files(const std::string& out_dir);
// True when out_dir holds a run: checkpoints, or a log of steps.
bool has_run(const std::string& out_dir);
// Twelve hexadecimal digits, different for every call on any machine.
std::string make_run_id();

}  // namespace duet
