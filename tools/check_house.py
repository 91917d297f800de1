#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not: who may include whom, where vendor headers
may stand, file length, file names at the top, that every table of kernels names those for CUDA, and that every
op of ops/ops.h has a row in the op table.

    tools/check_house.py [ROOT]        exit 1 and one line per broken rule
"""
import re
import subprocess
import sys
from pathlib import Path

ROOMS = ["runtime", "autograd", "ops", "models", "train", "tools"]  # each may use those before it
TOP = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "tests", *ROOMS}
VENDOR = re.compile(r'#include\s+[<"](dnnl|Eigen/|oneapi/|hwy/|cuda|cublas|cudnn|omp\.h|mpi\.h|nccl)')
CODE = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"}
# Parsers of what others may have written, and the files where their depth is bounded.
PARSER = re.compile(r"\b[Jj]son::parse\(|\bsax_parse\(|[<\"]toml\+\+/")
PARSING = {"runtime/safetensors_header.cpp", "train/json_text.cpp", "train/toml.h"}
MAX_LINES, MAX_README = 500, 60
MAX_OPS_README = 100  # it holds "Adding an op", a page of its own


def files(root):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root,
                         capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in out.splitlines() if (root / line).is_file()]


def vendor_allowed(path):
    return (path.parts[0] == "runtime" and len(path.parts) > 2 and path.parts[1] in ("cpu", "cuda")
            or path.name.endswith(("_cpu.cpp", ".cu", ".cuh"))
            or path.name.endswith("-inl.h")  # Highway's per-target includes
            or path.parts[0] == "tests")


def proves_ops(path, line):
    """`duet op check` runs the very rows and checks that the tests run: a second set would drift from
    the first. They know no test framework, and only these files of the product may use them;
    so may the example of an op outside the tree."""
    return re.fullmatch(r"tools/(op_|example_op/)\w+\.(cpp|h)", str(path)) and line.startswith('#include "tests/ops/')


def simulates(path, line):
    """The one door through which kernels find the simulated GPU (DUET_CUDA=SIM)."""
    return str(path) == "runtime/cuda/port.h" and line.startswith('#include "tests/sim_cuda/device.h"')


def tables_without_cuda(text):
    """Line numbers of kernel tables without one for CUDA. Left out it is null, and the op fails on a GPU
    where the linker would have told of a forgotten file."""
    text = re.sub(r"//[^\n]*", "", text)
    for table in re.finditer(r"\bKernelTable<[\w@:<>, ]+>\s+\w+\s*(?:\(\)[^;{]*)?\{[^;]*;", text):
        if not re.search(r"\b(DUET_CUDA_TABLE|device_table)\(", table[0]):
            yield text.count("\n", 0, table.start()) + 1


def op_names(root):
    """Functions declared in ops/ops.h."""
    text = re.sub(r"//[^\n]*", "", (root / "ops/ops.h").read_text())
    return sorted(set(re.findall(r"(?:Tensor|std::array<Tensor, \d+>)\s+(\w+)\(", text)))


def row_names(root):
    """First words of the rows in tests/ops/*_cases.cpp: every quoted name is a candidate."""
    names = set()
    for f in (root / "tests/ops").glob("*cases*"):
        names |= set(re.findall(r'"([a-z_0-9]+)"', f.read_text()))
    return names


def problems(root):
    for path in files(root):
        top = path.parts[0]
        if top not in TOP and not top.startswith("."):
            yield f"{path}: top-level name outside the fixed list: got {top}, expected one of {sorted(TOP)}"
        if path.suffix not in CODE and path.name != "README.md":
            continue
        lines = (root / path).read_text(errors="replace").splitlines()
        limit = MAX_LINES
        if path.name == "README.md" and len(path.parts) > 1:
            limit = MAX_OPS_README if top == "ops" else MAX_README
        if len(lines) > limit:
            yield f"{path}: file too long: got {len(lines)} lines, expected <= {limit}; split it"
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        if lines and not lines[0].startswith(("//", "#pragma", "#include")):
            yield f"{path}:1: no banner: expected a comment that says what the file is"
        if path.suffix == ".h" and not path.name.endswith("-inl.h") and "#pragma once" not in lines:
            yield f"{path}: header without #pragma once"
        for number, line in enumerate(lines, 1):
            if VENDOR.search(line) and not vendor_allowed(path):
                yield f"{path}:{number}: vendor header outside runtime/cpu and *_cpu.cpp: {line.strip()}"
            match = re.match(r'#include "([a-z]+)/', line)
            if match and top in ROOMS and match[1] in ROOMS + ["tests"] and not (
                    proves_ops(path, line) or simulates(path, line)):
                if match[1] == "tests" or ROOMS.index(match[1]) > ROOMS.index(top):
                    yield f"{path}:{number}: {top} may not include {match[1]}: {line.strip()}"
            if top in ROOMS and PARSER.search(line) and str(path) not in PARSING:
                yield f"{path}:{number}: a parser without bounds: use train/json_text.h or train/toml.h: {line.strip()}"
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                yield f"{path}:{number}: left for later: {line.strip()}"
            if top == "ops" and re.search(r"\btype\s*[!=]=\s*DeviceType::(cuda|cpu)\b", line):
                yield (f"{path}:{number}: an op's sizes and limits follow Device::kernels(), or a plan on meta "
                       f"has others: {line.strip()}")
            if "std::regex" in line or re.search(r"\bassert\(", line) or "std::abort" in line:
                yield f"{path}:{number}: std::regex, assert and abort are not used here: {line.strip()}"
        if top in ROOMS:
            for number in tables_without_cuda("\n".join(lines)):
                yield (f"{path}:{number}: kernel table without one for CUDA: expected DUET_CUDA_TABLE(NAME_cuda) "
                       "after the CPU's")
    rows = row_names(root)
    for op in op_names(root):
        if not any(row == op or row.startswith(op + "_") for row in rows):
            yield f"ops/ops.h: op without a row in tests/ops/*_cases.cpp: {op}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    found = list(problems(root))
    print("\n".join(found) if found else "house check: no broken rule")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
