#!/usr/bin/env python3
"""Duet as others use it, by the first lines of tools/API.md: installs a build, then builds and runs
tools/example_op against what was installed; and configures it with add_subdirectory. Also: the headers that the
page calls stable are installed and compile without vendor headers.

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
BUILD, CXX = Path(sys.argv[1]).resolve(), sys.argv[2]
PAGE = (SOURCE / "tools/API.md").read_text()
INSTALL, COPY, TRY = re.search(r"```sh\n(.*?)```", PAGE, re.S)[1].splitlines()  # its first commands


def run(*command, ok=True, **more):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", CXX=CXX, CMAKE_EXPORT_COMPILE_COMMANDS="ON",
                       **more.pop("environment", {}))
    environment.pop("CMAKE_GENERATOR", None)  # the page must name it: a bare system has no make
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, **more)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


class ExampleOp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = Path(tempfile.mkdtemp(prefix="duet_outside_"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.prefix, cls.example = cls.dir / "duet-installed", cls.dir / "my_op"
        install = INSTALL.split("#")[0].split("&&")[2]
        cls.shell(install.replace(" build ", f" {BUILD} "))
        cls.shell(COPY)  # away from the tree
        cls.include = cls.prefix / "include/duet"

    @classmethod
    def shell(cls, line, directory=SOURCE, **environment):
        return run("bash", "-ec", line, cwd=directory, environment={"HOME": str(cls.dir), **environment})

    @staticmethod
    def commands(build):
        assert "CMAKE_GENERATOR:INTERNAL=Ninja" in (build / "CMakeCache.txt").read_text()
        return {Path(c["file"]).name: c["command"] for c in json.loads((build / "compile_commands.json").read_text())}

    def test_configures_without_gtest(self):
        """As quickstart.sh leaves a system: no make, no GTest."""
        fresh = self.dir / "fresh"
        configure = INSTALL.split("&&")[0].replace("-B build", f"-B {fresh} -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
        self.assertIn("Tests: OFF", self.shell(configure).stdout)
        self.assertNotIn("tensor_test.cpp", self.commands(fresh))

    def test_find_package(self):
        flags = "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
        print(self.shell(TRY, self.example, CXXFLAGS=flags).stdout, flush=True)
        for command in self.commands(self.example / "build").values():
            self.assertNotIn(str(SOURCE), command)  # all of it comes from what was installed
            self.assertIn(flags, command)
        self.assertEqual(len(re.findall("Passed", self.shell("ctest --test-dir build", self.example).stdout)), 2)

    def test_add_subdirectory(self):
        build = self.dir / "inside"
        run("cmake", "-S", SOURCE / "tools/example_op", "-B", build, "-G", "Ninja", f"-DDUET_SOURCE={SOURCE}")
        commands = self.commands(build)
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
        named = re.findall(r"`([a-z_]+/[a-z_/]+\.h)`", PAGE)
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
