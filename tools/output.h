// Standard input and output of the commands, and what a failure there means.
#pragma once

#include <string>
#include <string_view>

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
// The file of an answer, written in place: the path may be a device or a link. Throws Error(io),
// naming it.
void write_file(const std::string& path, std::string_view content);
// Whether write_file() can succeed, asked before the work whose answer it is; writes nothing. Fine
// for "". Throws Error(io), naming the path.
void check_writable(const std::string& path);
// All of standard input. Throws Error(io).
std::string read_input();

}  // namespace duet
