// RunDirectory: out_dir while a run owns it. Locked against a second run, and the place of its
// files.
#pragma once

#include <string>

#include "runtime/file_system.h"

namespace duet {

class RunDirectory {
 public:
  // Makes out_dir if missing and locks it until this object goes. Throws Error(usage) naming the
  // holder when another run has it, Error(io) when it cannot be written.
  explicit RunDirectory(const std::string& out_dir);

  std::string path(const std::string& name) const { return out_dir_ + "/" + name; }
  // Whole or not at all; left alone if it already has this content.
  void write(const std::string& name, const std::string& content) const;

 private:
  std::string out_dir_;
  FileLock lock_;
};

// True when out_dir holds a run: checkpoints, or a log of steps.
bool has_run(const std::string& out_dir);
// Twelve hexadecimal digits, different for every call on any machine.
std::string make_run_id();

}  // namespace duet
