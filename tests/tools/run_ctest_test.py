"""The counting line of the test command: what it says of ctest's lines, on a terminal and in a log."""
import io
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_ctest  # noqa: E402

LINES = """Internal ctest changing into directory: /b
Test project /b
        Start   1: Data.Splits
  1/4 Test   #1: Data.Splits ..................   Passed    0.01 sec
        Start   2: Table/Ops.Meta/silu
  2/4 Test   #2: Table/Ops.Meta/silu ..........***Failed    0.25 sec
ops.cpp:3: Failure
{more}
  3/4 Test   #3: page .........................***Skipped   0.01 sec
  4/4 Test   #4: Kill.Dies ....................***Exception: SegFault  3.00 sec
last words

50% tests passed, 2 tests failed out of 4

Total Test time (real) =   3.27 sec

The following tests FAILED:
\t  2 - Table/Ops.Meta/silu (Failed)
"""


class Output(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


class RunCtest(unittest.TestCase):
    def run_with(self, terminal, more="detail", seconds=1.0, last=None):
        times = iter(i * seconds for i in range(1000))
        out = Output(terminal)
        progress = run_ctest.Progress(out, lambda: next(times), last)
        run_ctest.follow(LINES.replace("{more}", more).splitlines(keepends=True), progress)
        return progress, out.getvalue()

    def test_counts(self):
        progress, _ = self.run_with(terminal=False)
        self.assertEqual((progress.done, progress.total, progress.failed, progress.skipped), (4, 4, 2, 1))

    def test_the_remaining_time_counts_what_tests_took_before(self):
        last = {"Data.Splits": 9.0, "Table/Ops.Meta/silu": 0.5, "page": 0.25, "Kill.Dies": 0.25}
        _, out = self.run_with(terminal=False, seconds=30, last=last)
        self.assertIn("tests: 1 of 4, 0 failed, 1 m 00 s, about 6 s to go", out)

    def test_a_log_has_whole_lines_and_few_of_them(self):
        _, out = self.run_with(terminal=False)
        self.assertNotIn("\r", out)
        self.assertEqual(out.splitlines(), [
            "tests: 1 of 4, 0 failed, 2 s, about 6 s to go", "FAILED Table/Ops.Meta/silu (failed, 0.25 s)",
            "ops.cpp:3: Failure", "detail", "skipped page", "FAILED Kill.Dies (exception: segfault, 3.00 s)",
            "last words"])
        _, out = self.run_with(terminal=False, seconds=20)
        self.assertEqual(out.count("tests: "), 4)

    def test_a_terminal_has_one_line_that_is_rewritten(self):
        _, out = self.run_with(terminal=True)
        self.assertEqual(out.count("\rtests: "), 4)
        self.assertIn("\r\033[KFAILED Table/Ops.Meta/silu (failed, 0.25 s)\n", out)
        self.assertIn("tests: 4 of 4, 2 failed", out)

    def test_what_a_failure_prints_is_cut(self):
        _, out = self.run_with(terminal=False, more="\n".join(f"line {i} " + "x" * 1000 for i in range(2500)))
        lines = out.splitlines()
        self.assertLess(len(lines), 80)
        self.assertLess(max(map(len, lines)), 320)
        self.assertIn("LastTest.log", out)
        self.assertIn("last words", out)  # of the next failure

    def test_durations(self):
        self.assertEqual([run_ctest.duration(s) for s in (0.4, 59.9, 60, 754)], ["0 s", "59 s", "1 m 00 s", "12 m 34 s"])


if __name__ == "__main__":
    unittest.main()
