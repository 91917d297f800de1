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
from pathlib import Path

MAX_LINES, MAX_WIDTH = 60, 300  # of a failed test's output
RESULT = re.compile(r" *(\d+)/(\d+) Test +#\d+: (.*?) \.*(?: +|\*\*\*)(.*?) +([\d.]+) sec$")


class Progress:
    """`seconds`: what each test took the last time. ctest begins with the longest, so that a count of
    tests alone would promise hours."""

    def __init__(self, out, clock=time.monotonic, seconds=None):
        self.out, self.clock, self.start = out, clock, clock()
        self.seconds, self.worked = seconds or {}, 0.0
        self.terminal, self.shown = out.isatty(), -15.0
        self.done = self.total = self.failed = self.skipped = 0

    def line(self):
        elapsed = self.clock() - self.start
        text = f"tests: {self.done} of {self.total}, {self.failed} failed, {duration(elapsed)}"
        if self.done > 0 and self.done < self.total:
            share = self.worked / sum(self.seconds.values()) if self.seconds else self.done / self.total
            text += f", about {duration(elapsed * (1 - share) / share)} to go" if share > 0 else ""
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


def last_times(build, arguments):
    """Seconds by name of the tests that the arguments select; a test that never ran counts as the mean."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-N", *arguments], capture_output=True, text=True).stdout
    names = re.findall(r"^ +Test +#\d+: (.*)$", listed, re.M)
    costs = {}
    kept = Path(build) / "Testing/Temporary/CTestCostData.txt"
    for line in kept.read_text().splitlines() if kept.exists() else []:
        if line == "---":
            break
        name, _, cost = line.rsplit(" ", 2)
        costs[name] = float(cost)
    known = [costs[n] for n in names if costs.get(n)]
    mean = sum(known) / len(known) if known else 1.0
    return {name: costs.get(name) or mean for name in names}


def follow(lines, progress):
    """Reads ctest's lines and prints what a reader wants of them."""
    shown = 0  # lines of the failed test before
    for line in lines:
        line = line.rstrip("\n")
        result = RESULT.match(line)
        if result:
            shown = 0
            progress.done, progress.total = int(result[1]), int(result[2])
            progress.worked += progress.seconds.get(result[3], 0.0)
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
    progress = Progress(sys.stdout, seconds=last_times(build, arguments))
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
