// The wish that the process stops, as long loops ask for it: a signal handler or a test makes the
// wish, and check_stop() leaves the loop.
//
//   for (const Batch& batch : batches) {
//     check_stop();
//     ...
//   }
#pragma once

namespace duet {

// Thrown to stop. Not an Error, because nothing is wrong: whoever owns the files saves and ends.
struct Stopped {
  int signal;
};

// Makes the wish; false when it was made before, which keeps the first signal. Safe in a signal
// handler.
bool request_stop(int signal) noexcept;
int stop_requested() noexcept;  // the signal of the wish; 0: there is none
void forget_stop() noexcept;    // takes the wish back

// Throws Stopped once a stop is requested. Only for code that may be left half-way: never inside a
// parallel region, an update of weights or a save.
void check_stop();

}  // namespace duet
