#!/usr/bin/env python3
"""Runs ctest behind one counting line, prints each failure at once, and the totals last:
"N passed, N failed, N skipped". The exit code is ctest's.

    tools/run_ctest.py BUILD_DIR [CTEST ARGUMENT...]

On a terminal the line is rewritten in place; elsewhere it is a line every 15 seconds at most. Of a failed
test it prints the first lines, cut to a width; BUILD_DIR/Testing/Temporary/LastTest.log has all of them.
"""
import re
import shutil
import subprocess
import sys
import time

MAX_LINES, MAX_WIDTH = 60, 300  # of a failed test's output
RESULT = re.compile(r" *(\d+)/(\d+) Test +#\d+: (.*?) \.*(?: +|\*\*\*)(.*?) +([\d.]+) sec$")


class Progress:
    def __init__(self, out, clock=time.monotonic):
        self.out, self.clock, self.start = out, clock, clock()
        self.terminal, self.shown = out.isatty(), -15.0
        self.done = self.total = self.failed = self.skipped = 0

    def line(self):
        elapsed = self.clock() - self.start
        text = f"tests: {self.done} of {self.total}, {self.failed} failed, {duration(elapsed)}"
        if self.done > 0 and self.done < self.total:
            text += f", about {duration(elapsed * (self.total - self.done) / self.done)} to go"
        return text

    def show(self):
        now = self.clock() - self.start
        if self.terminal and (now - self.shown >= 0.1 or self.done == self.total):
            width = shutil.get_terminal_size().columns - 1
            self.out.write("\r" + self.line()[:width] + "\033[K")
        elif not self.terminal and now - self.shown >= 15:
            self.out.write(self.line() + "\n")
        else:
            return
        self.shown = now
        self.out.flush()

    def say(self, text):
        self.out.write(("\r\033[K" if self.terminal else "") + text + "\n")
        self.out.flush()


def duration(seconds):
    seconds = int(seconds)
    return f"{seconds // 60} m {seconds % 60:02} s" if seconds >= 60 else f"{seconds} s"


def follow(lines, progress):
    """Reads ctest's lines and prints what a reader wants of them."""
    shown = 0  # lines of the failed test before
    for line in lines:
        line = line.rstrip("\n")
        result = RESULT.match(line)
        if result:
            shown = 0
            progress.done, progress.total = int(result[1]), int(result[2])
            if result[4] in ("Skipped", "Not Run (Disabled)"):
                progress.skipped += 1
                progress.say(f"skipped {result[3]}")
            elif result[4] != "Passed":
                progress.failed += 1
                progress.say(f"FAILED {result[3]} ({result[4].lower()}, {result[5]} s)")
            progress.show()
        elif re.match(r" *Start +\d+: |Test project |Internal ctest changing|\s*$|\d+% tests passed", line):
            pass
        elif re.match(r"(The following tests|Label Time Summary|Total Test time|Errors while running)", line):
            return  # ctest's own summary: every line of it has been said
        elif progress.failed == 0 or shown < MAX_LINES:
            shown += 1
            progress.say(line if len(line) <= MAX_WIDTH else line[:MAX_WIDTH] + " ...")
        elif shown == MAX_LINES:
            shown += 1
            progress.say("... more in Testing/Temporary/LastTest.log of the build directory")


def main():
    build, *arguments = sys.argv[1:]
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", *arguments]
    progress = Progress(sys.stdout)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as ctest:
        follow(ctest.stdout, progress)
        for _ in ctest.stdout:
            pass
    progress.say(progress.line())
    if progress.total == 0 or progress.done < progress.total:
        print("error: ctest did not finish", file=sys.stderr)
        return 1
    if progress.skipped:
        print("Skipped tests need an NVIDIA GPU, nvcc (cuda_build), Chromium (profile_page) or "
              "clang-format 14 (format).")
    passed = progress.total - progress.failed - progress.skipped
    print(f"{passed} passed, {progress.failed} failed, {progress.skipped} skipped")
    return ctest.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
