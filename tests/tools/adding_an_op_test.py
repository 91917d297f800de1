#!/usr/bin/env python3
"""Does what ops/README.md, "Adding an op", tells: `duet op new` in a copy of the sources, whose skeleton
compiles and whose check says that the maths is missing; then the page's code in its places, and the check
passes. Each op is linked with the libraries of the build.

    adding_an_op_test.py BUILD_DIR CXX [TEST...]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
BUILD, CXX = Path(sys.argv[1]).resolve(), sys.argv[2]
FLAGS = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
SIMULATED = ["-DDUET_DEVICE_CODE=1", "-DDUET_SIM_CUDA=1", "-fno-strict-aliasing", "-Wno-pedantic",
             "-Wno-maybe-uninitialized"]  # as CMakeLists.txt compiles .cu files with DUET_CUDA=SIM
CACHE = dict(re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M))
HEADERS = [Path(d) for d in (CACHE.get("CUDA_INCLUDE", "/nowhere"), "/usr/local/cuda/include", "/usr/local/include")]
NVCC = CACHE.get("CMAKE_CUDA_COMPILER")  # of a build for real GPUs
PAGE = (SOURCE / "ops/README.md").read_text().split("## Adding an op")[1].split("\n## ")[0]
PROVE = """#include <cstdio>
#include "tests/ops/harness.h"
#include "tests/ops/proof.h"
namespace duet::test {
std::vector<OpCase> NAME_cases();
}
int main(int words, char**) {
  if (words > 1) duet::test::use_device({duet::DeviceType::cuda, 0});
  for (const auto& row : duet::test::NAME_cases()) {
    if (const auto fault = duet::test::first_fault(row)) {
      return std::printf("%s: %s: %s\\n", row.name.c_str(), fault->kind.c_str(), fault->message.c_str()), 1;
    }
  }
  return 0;
}
"""

RATIO_ORACLE = """
double oracle_of(double a, double b) { return a / (4 + b); }
"""
RATIO = """
  template <class T>
  DUET_HD static T f(T a, T b) {
    return a / (T(4) + b);
  }
  template <class T>
  DUET_HD static T da(T, T b) {
    return T(1) / (T(4) + b);
  }
  template <class T>
  DUET_HD static T db(T a, T b) {
    b = T(4) + b;
    return -a / (b * b);
  }
"""
CENTER_CUDA = """
__device__ void forward_row(const float* x, float* y, std::int64_t width) {
  float sum = 0;
  for (std::int64_t j = threadIdx.x; j < width; j += kThreads) sum += x[j];
  const float mean = cuda::block_reduce<cuda::Sum, kThreads>(sum) / static_cast<float>(width);
  for (std::int64_t j = threadIdx.x; j < width; j += kThreads) y[j] = x[j] - mean;
}
__device__ void backward_row(const float*, const float* dy, float* dx, std::int64_t width) {
  forward_row(dy, dx, width);
}
"""
LAZY = """
template <class T>
T lazy(T x) {
  return x;
}
template <class T>
Dual<T> lazy(Dual<T> x) {
  return {x.v, x.d * T(0.5)};
}
"""


def run(*command, ok=True, **options):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, **options)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def put(path, code):
    """Replaces in `path` each function that `code` defines."""
    text = path.read_text()
    names = re.findall(r"^ *[\w:& ]*?(\w+)\([^;]*\) \{", code, re.MULTILINE)
    assert names, code
    for name in names:
        pattern = rf"^( *)((?!namespace|struct)[\w:&\[\]* ]+) {name}\([^;{{}}]*\) \{{.*?(^\1\}}|\}})$\n"
        new, old = re.search(pattern, code, re.S | re.M), re.search(pattern, text, re.S | re.M)
        assert new and old, f"{name} in {path}"
        text = text[:old.start()] + new[0] + text[old.end():]
    path.write_text(text)


def delete_throw(path):
    text, count = re.subn(r"^  throw Error\(.*?;\n", "", path.read_text(), flags=re.S | re.M)
    assert count == 1, f"{count} throws in {path}"
    path.write_text(text)


def drop(tree, op):
    """Takes `op` out of `tree`, if a reader of the page has left it there."""
    for path in (tree / f"ops/pointwise/{op}.cu", tree / f"tests/ops/{op}_cases.cpp"):
        path.unlink(missing_ok=True)
    shutil.rmtree(tree / "ops" / op, ignore_errors=True)
    for path in (tree / "ops/ops.h", tree / "tests/ops/op_cases.h"):
        text = path.read_text()
        text = re.sub(rf"(^//[^\n]*\n)?^Tensor {op}\([^;]*;[^\n]*\n", "", text, flags=re.M)
        path.write_text(re.sub(rf"^ *(std::vector<OpCase> )?{op}_cases(\(\);|,)\n", "", text, flags=re.M))


class AddingAnOp(unittest.TestCase):
    def setUp(self):
        self.tree = Path(tempfile.mkdtemp(prefix="duet_op_new_"))
        self.addCleanup(shutil.rmtree, self.tree)
        for file in ("CMakeLists.txt", ".clang-format"):
            shutil.copy(SOURCE / file, self.tree)
        for room in ("runtime", "autograd", "ops", "tests/ops", "tests/sim_cuda"):
            shutil.copytree(SOURCE / room, self.tree / room)
        self.blocks = re.findall(r"```cpp\n(.*?)```", PAGE, re.S)

    def new(self, command, told=True):
        if told:
            self.assertIn(command, PAGE)
        name = command.split()[3]
        drop(self.tree, name)
        run(BUILD / "duet", *command.split()[1:], cwd=self.tree)
        (self.tree / "prove.cpp").write_text(PROVE.replace("NAME", name))
        self.objects = {}
        return name

    def compile(self, source, *more, to):
        run(CXX, *FLAGS, *more, "-I", self.tree, "-x", "c++", self.tree / source, *to)

    def check(self, *sources, flags=(), arguments=()):
        """What the rows' first fault is; "" for none. Compiles only what changed."""
        for source in sources:
            text = (self.tree / source).read_text()
            if self.objects.get(source) == text:
                continue
            more = [*flags, *(SIMULATED if source.endswith(".cu") and flags else [])]
            self.compile(source, *more, to=["-c", "-o", self.tree / (Path(source).name + ".o")])
            self.objects[source] = text
        libraries = re.search(r"LINK_LIBRARIES = (.*)", self.link_rule())[1].split()
        run(CXX, *[self.tree / (Path(s).name + ".o") for s in sources], "-o", self.tree / "prove",
            *libraries, cwd=BUILD)
        return run(self.tree / "prove", *arguments, ok=False).stdout

    @staticmethod
    def link_rule():
        text = (BUILD / "build.ninja").read_text()
        return text[text.index("build duet: CXX_EXECUTABLE_LINKER"):]

    def test_pointwise(self):
        name = self.new("build/duet op new softsign --pointwise")
        op, row = f"ops/pointwise/{name}.cu", f"tests/ops/{name}_cases.cpp"
        self.assertIn(f"{name}: the maths is missing", self.check(op, row, "prove.cpp"))
        delete_throw(self.tree / op)
        self.assertIn(f"{name}: the oracle is missing", self.check(op, row, "prove.cpp"))
        put(self.tree / row, self.blocks[1])
        self.assertIn(name, self.check(op, row, "prove.cpp"))  # the skeleton's f is not this op's
        put(self.tree / op, self.blocks[0])
        self.assertEqual(self.check(op, row, "prove.cpp"), "")

    def test_kernels(self):
        name = self.new("build/duet op new center_rows --kernels")
        op, cpu, row = f"ops/{name}/{name}.cpp", f"ops/{name}/{name}_cpu.cpp", f"tests/ops/{name}_cases.cpp"
        self.assertIn(f"{name}: the maths is missing", self.check(op, cpu, row, "prove.cpp"))
        delete_throw(self.tree / op)
        put(self.tree / row, self.blocks[3])
        self.assertIn(name, self.check(op, cpu, row, "prove.cpp"))
        put(self.tree / cpu, self.blocks[2])
        self.assertEqual(self.check(op, cpu, row, "prove.cpp"), "")

    def test_kernels_for_cuda(self):
        """The skeleton's .cu compiles; where the build simulates a GPU, its kernels pass the check there."""
        headers = next((d for d in HEADERS if (d / "cuda_runtime.h").exists()), None)
        if headers is None:
            self.skipTest("cuda_runtime.h is not here")
        name = self.new("build/duet op new center_rows --kernels")
        op, row, cuda = f"ops/{name}/{name}.cpp", f"tests/ops/{name}_cases.cpp", f"ops/{name}/{name}.cu"
        flags = ["-DDUET_CUDA_BUILD=1", "-isystem", headers]
        self.compile(cuda, *flags, *SIMULATED, to=["-fsyntax-only"])
        if NVCC and Path(NVCC).exists():
            run(NVCC, "-std=c++20", "--expt-relaxed-constexpr", "-arch=sm_80", "-DDUET_CUDA_BUILD=1",
                "-DDUET_DEVICE_CODE=1", "-I", self.tree, "-c", self.tree / cuda, "-o", self.tree / "nvcc.o")
        if CACHE.get("DUET_CUDA") != "SIM":
            return
        delete_throw(self.tree / op)
        put(self.tree / row, self.blocks[3])
        put(self.tree / f"ops/{name}/{name}_cpu.cpp", self.blocks[2])
        sources = [op, f"ops/{name}/{name}_cpu.cpp", cuda, row, "prove.cpp"]
        self.assertIn("wrong", self.check(*sources, flags=flags, arguments=["cuda"]))  # y = x
        put(self.tree / cuda, CENTER_CUDA)
        self.assertEqual(self.check(*sources, flags=flags, arguments=["cuda"]), "")
        self.assertEqual(self.check(*sources, flags=flags), "")

    def test_two_operands(self):
        name = self.new("build/duet op new ratio --pointwise --inputs 2", told=False)
        op, row = f"ops/pointwise/{name}.cu", f"tests/ops/{name}_cases.cpp"
        self.assertIn(f"{name}: the maths is missing", self.check(op, row, "prove.cpp"))
        delete_throw(self.tree / op)
        put(self.tree / row, RATIO_ORACLE)
        self.assertIn(name, self.check(op, row, "prove.cpp"))
        put(self.tree / op, RATIO)
        self.assertEqual(self.check(op, row, "prove.cpp"), "")
        # A derivative by b that dual numbers see as half of what it is: right once, wrong twice.
        put(self.tree / op, RATIO.replace("(b * b)", "lazy(b * b)"))
        text = (self.tree / op).read_text()
        (self.tree / op).write_text(text.replace("namespace {\n", "namespace {\n" + LAZY, 1))
        self.assertIn("wrong second derivative", self.check(op, row, "prove.cpp"))

    def test_in_a_tree_that_has_the_op(self):
        """What a reader of the page built and left there stands in no test's way."""
        for command in ("duet op new softsign --pointwise", "duet op new center_rows --kernels"):
            name = self.new(command, told=False)
            self.assertEqual(self.new(command, told=False), name)  # refused, were it still there
            drop(self.tree, name)
            self.assertEqual(list(self.tree.rglob(f"*{name}*")), [])
            for path in ("ops/ops.h", "tests/ops/op_cases.h"):
                self.assertNotRegex((self.tree / path).read_text(), rf"\b{name}(_cases)?\b")
            before = {p: p.read_text() for p in self.tree.rglob("*") if p.is_file()}
            self.new(command, told=False)
            drop(self.tree, name)
            self.assertEqual({p: p.read_text() for p in self.tree.rglob("*") if p.is_file()}, before)

    def test_the_section_is_a_page(self):
        self.assertLessEqual(len(PAGE.splitlines()), 60)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
