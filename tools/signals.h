// What the signals mean to a command that saves its work. SIGINT, SIGTERM, SIGUSR1, SIGUSR2,
// SIGXCPU and SIGPWR ask for a clean stop (runtime/stop.h); a second SIGINT or SIGTERM, or SIGQUIT,
// ends the process at once. SIGHUP and SIGALRM are ignored: a run goes on without its terminal.
#pragma once

namespace duet {

void install_stop_signals();

}  // namespace duet
