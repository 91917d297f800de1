#!/usr/bin/env python3
"""Duet as others use it: installs a build, then builds and runs tools/example_op against what was installed,
and configures it with add_subdirectory. Also: the headers that tools/API.md calls stable are installed and
compile without vendor headers.

    example_op_test.py BUILD_DIR CXX [TEST...]
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
BUILD, CXX = Path(sys.argv[1]), sys.argv[2]


def run(*command, ok=True):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", CXX=CXX)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


class ExampleOp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = Path(tempfile.mkdtemp(prefix="duet_outside_"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.prefix, cls.example = cls.dir / "prefix", cls.dir / "example"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        shutil.copytree(SOURCE / "tools/example_op", cls.example)  # away from the tree
        cls.include = cls.prefix / "include/duet"

    def configure(self, name, *arguments):
        build = self.dir / name
        run("cmake", "-S", self.example, "-B", build, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            *arguments)
        commands = json.loads((build / "compile_commands.json").read_text())
        return build, {str(Path(c["file"]).name): c["command"] for c in commands}

    def test_find_package(self):
        build, commands = self.configure(
            "found", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror")
        for command in commands.values():
            self.assertNotIn(str(SOURCE), command)  # all of it comes from what was installed
        run("cmake", "--build", build)
        lists = (self.example / "CMakeLists.txt").read_text()
        for name in re.findall(r"add_test\(NAME \w+ COMMAND (\w+)\)", lists):
            print(run(build / name).stdout, flush=True)

    def test_add_subdirectory(self):
        build, commands = self.configure("inside", f"-DDUET_SOURCE={SOURCE}")
        self.assertNotIn("-Werror", " ".join(commands.values()))
        self.assertNotIn("-Wconversion", commands["softcap.cpp"])
        self.assertIn("-Wconversion", commands["tensor.cpp"])
        self.assertIn("-O3", commands["tensor.cpp"])
        self.assertNotIn("tensor_test.cpp", commands)
        # The op compiles with what the target hands on, and the program is linked with every room.
        run("ninja", "-C", build, "CMakeFiles/train_softcap.dir/softcap.cpp.o")
        steps = run("ninja", "-C", build, "-t", "commands", "train_softcap").stdout
        for room in ("runtime", "autograd", "ops", "models", "train"):
            self.assertIn(f"libduet_{room}.a", steps)

    def test_the_stable_headers_need_no_others(self):
        named = re.findall(r"`([a-z_]+/[a-z_/]+\.h)`", (SOURCE / "tools/API.md").read_text())
        self.assertGreater(len(named), 20)
        source = self.dir / "headers.cpp"
        source.write_text("".join(f'#include "{h}"\n' for h in named) + "int main() {}\n")
        used = run(CXX, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-MD", "-MF", "/dev/stdout",
                   "-I", self.include, source).stdout
        for header in named:
            self.assertIn(str(self.include / header), used)
        self.assertNotRegex(used, r"/(dnnl|Eigen|hwy|fmt|nlohmann|toml\+\+)")

    def test_versions(self):
        file = next(self.prefix.rglob("duetConfigVersion.cmake"))
        for version, fits in (("0.1", True), ("0.1.0", True), ("0.2", False), ("0.0", False), ("1.0", False)):
            major, minor = version.split(".")[:2]
            script = self.dir / "version.cmake"
            script.write_text(f"""set(PACKAGE_FIND_VERSION {version})
                                  set(PACKAGE_FIND_VERSION_MAJOR {major})
                                  set(PACKAGE_FIND_VERSION_MINOR {minor})
                                  set(CMAKE_SIZEOF_VOID_P 8)
                                  include({file})
                                  message("compatible=${{PACKAGE_VERSION_COMPATIBLE}}")""")
            said = run("cmake", "-P", script).stderr
            self.assertEqual("compatible=TRUE" in said, fits, version + ": " + said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
