// Standard input and output of the commands, and what a failure there means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/terminal_text.h"
#include "train/device_choice.h"

namespace duet {

// The reader of standard output left (`| head -1`): its choice, so the command ends quietly.
struct ReaderGone {};

// Opens /dev/null over descriptors 0 to 2 that are closed, in the wrong direction: no file opened
// later can land there, and using them still fails.
void reserve_standard_descriptors();

// Everything, at once: on a terminal as terminal_text(), and to a file or a pipe byte for byte.
// Throws ReaderGone, or Error(io) when the system refuses.
void write_out(std::string_view text);
// What a command says while it works, where its result is files or an exit code: a standard output
// that cannot be written is told once on standard error, and the work goes on.
void write_progress(const Screen& text);
// To standard error, as terminal_text(); failures are ignored, there is nowhere left to tell.
void write_error(std::string_view text);
// "note: " and the text on a line of standard error; nothing for "".
void note(const std::string& text);
// "note: device: cpu: auto: no usable GPU: ..." to standard error, where auto fell back.
void note_fallback(const std::string& key, const DeviceChoice& choice);
// A file that a command writes because a flag names it.
struct AnswerFile {
  std::string flag;                      // "--json"
  std::string path;                      // empty: not asked for
  std::vector<std::string_view> begins;  // how the files begin that the flag makes
};
// What is not to be found out after the work whose answers they are; writes nothing. Throws
// Error(usage) for a path that leads to one of `inputs`, to another answer, or to a file that holds
// something else, Error(io) for one that cannot be written.
void check_answers(const std::vector<AnswerFile>& answers, const std::vector<std::string>& inputs);
// Fine if it is not asked for. It is written in place: the path may be a device or a link.
void write_answer(const AnswerFile& answer, std::string_view content);
// All of standard input. Throws Error(io).
std::string read_input();

}  // namespace duet
