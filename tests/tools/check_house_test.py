"""The house check must find each kind of broken rule that it claims to find."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_house  # noqa: E402

OPS_H = "// ops\n#pragma once\nTensor silu(const Tensor& x);\n"
ROW = '// rows\n{"silu", {{3}}},\n'


class CheckHouse(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            for name, text in {"ops/ops.h": OPS_H, "tests/ops/a_cases.cpp": ROW, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(check_house.problems(root))

    def one(self, files, words):
        found = self.found(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_clean_tree(self):
        self.assertEqual(self.found({"runtime/a.cpp": '// a\n#include "runtime/b.h"\n'}), [])

    def test_include_against_the_direction(self):
        self.one({"runtime/a.cpp": '// a\n#include "ops/ops.h"\n'}, "runtime may not include ops")
        self.one({"ops/a.cpp": '// a\n#include "tests/b.h"\n'}, "ops may not include tests")

    def test_only_the_op_commands_use_the_op_table(self):
        row = '// a\n#include "tests/ops/op_cases.h"\n'
        self.assertEqual(self.found({"tools/op_check.cpp": row}), [])
        self.assertEqual(self.found({"tools/example_op/prove.cpp": row}), [])
        self.one({"tools/train.cpp": row}, "tools may not include tests")
        self.one({"tools/sub/op_check.cpp": row}, "tools may not include tests")
        self.one({"ops/op_check.cpp": row}, "ops may not include tests")
        self.one({"tools/op_check.cpp": '// a\n#include "tests/tools/process.h"\n'},
                 "tools may not include tests")

    def test_vendor_header(self):
        self.one({"ops/a/a.cpp": "// a\n#include <dnnl.hpp>\n"}, "vendor header")
        self.assertEqual(self.found({"ops/a/a_cpu.cpp": "// a\n#include <dnnl.hpp>\n"}), [])

    def test_parser_without_bounds(self):
        for line in ("auto t = nlohmann::json::parse(text);", "Json::parse(text);", "Json::sax_parse(text, &p);",
                     "#include <toml++/toml.h>"):
            self.one({"train/a.cpp": "// a\n" + line + "\n"}, "a parser without bounds")
            self.assertEqual(self.found({"train/json_text.cpp": "// a\n" + line + "\n",
                                         "tests/train/a_test.cpp": "// a\n" + line + "\n"}), [])

    def test_kernel_table_without_cuda(self):
        table = '// a\nconstexpr KernelTable<AKernels> kernels{"a", &a_cpu%s};\n'
        self.one({"ops/a/a.cpp": table % ""}, "ops/a/a.cpp:2: kernel table without one for CUDA")
        self.one({"ops/a/b.cpp": table % ",\n  nullptr"}, "kernel table without")
        self.one({"ops/a/a.cpp": table % "} /* DUET_CUDA_TABLE */"}, "kernel table without")
        self.one({"ops/a/a.cpp": "// a\nKernelTable<A<T>> f() const {\n  return {op, &a_cpu};\n}\n"}, "a.cpp:2:")
        for cuda in ("DUET_CUDA_TABLE(a_cuda)", "\n  DUET_CUDA_TABLE(a_cuda)", "device_table(a_cuda)"):
            self.assertEqual(self.found({"ops/a/a.cpp": table % (", " + cuda)}), [])
        self.assertEqual(self.found({"ops/a/a.cpp": "// a\nvoid f(const KernelTable<AKernels>& table) {}\n",
                                     "ops/a/b.cpp": "// a\n// KernelTable<A> kernels{a};\n",
                                     "tests/ops/a_test.cpp": table % ""}), [])

    def test_long_file(self):
        self.one({"ops/a.cpp": "// a\n" * 501}, "too long")
        self.one({"ops/README.md": "line\n" * 101}, "too long")
        self.one({"models/README.md": "line\n" * 61}, "too long")

    def test_top_level_name(self):
        self.one({"notes.txt": "x"}, "top-level name")

    def test_op_without_row(self):
        self.one({"tests/ops/a_cases.cpp": "// none\n"}, "op without a row")

    def test_words_left_behind(self):
        self.one({"ops/a.cpp": "// a\n// TO" + "DO: later\n"}, "left for later")
        self.one({"ops/a.cpp": "// a\nass" + "ert(x);\n"}, "not used here")

    def test_ops_plan_on_meta_what_they_take(self):
        self.one({"ops/a.cpp": "// a\nif (x.device().type == DeviceType::cuda) {}\n"}, "Device::kernels()")
        self.assertEqual(self.found({"ops/a.cpp": "// a\nif (x.device().kernels() == DeviceType::cuda) {}\n"}), [])

    def test_header_guard_and_banner(self):
        self.one({"ops/a.h": "// a\nint x;\n"}, "#pragma once")
        self.one({"ops/a.cpp": "int x;\n"}, "no banner")


if __name__ == "__main__":
    unittest.main()
