// SIGINT and SIGTERM (and SIGUSR1, which batch systems send ahead of a kill): the first asks for a
// clean stop, the second ends the process at once.
#pragma once

#include <atomic>

namespace duet {

// Installs the handlers, and ignores SIGHUP: a run goes on without its terminal. The value becomes
// the number of the first signal, with SIGUSR1 counted as SIGTERM.
const std::atomic<int>& install_stop_signals();

}  // namespace duet
