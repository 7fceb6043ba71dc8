#!/usr/bin/env python3
"""Tests that each gate finds the mistakes that it is for."""

import importlib.machinery
import importlib.util
import json
import pathlib
import tempfile
import unittest

import sources

HERE = pathlib.Path(__file__).parent


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


sizes = load("sizes")
includes = load("includes")
packages = load("packages")
kernels = load("kernels")
names = load("names")


class Packages(unittest.TestCase):
    LISTING = "\n".join(["liba-dev\tliba1 (= 2), libb-dev | libc-dev, \t", "libb-dev\t, libc6-virtual\t", "libc6-dev\t, \tlibc6-virtual (= 1)",
                         "liba1\t, \t", "libd-dev\t, \t"])

    def test_knows_what_a_package_brings(self):
        owned = {"liba-dev": "/usr/include/a.h", "liba1": "/usr/lib/liba.so.1", "libc6-dev": "/usr/include/stdio.h"}
        self.assertEqual(packages.missing("build_packages=(\n  liba-dev make\n)\n", self.LISTING, owned), {})

    def test_misses_one_that_setup_does_not_name(self):
        owned = {"liba-dev": "/usr/include/a.h", "libd-dev": "/usr/include/d.h"}
        self.assertEqual(packages.missing("test_packages=(liba-dev)\n", self.LISTING, owned), {"libd-dev": "/usr/include/d.h"})

    def test_reads_paths_as_they_stand_in_ninja_files(self):
        text = "a.o: #deps 2\n    /usr/include/a.h\n    ../../src/b.h\nbuild x: LINK y.o | /usr/lib/liba.so.1 $root/usr/lib/not.so\n"
        self.assertEqual(packages.OWNED.findall(text), ["/usr/include/a.h", "/usr/lib/liba.so.1"])


class Kernels(unittest.TestCase):
    REPORT = """ptxas info    : Compiling entry function '_Zone' for 'sm_90'
ptxas info    : Function properties for _Zone
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers
ptxas info    : Compiling entry function '_Ztwo' for 'sm_120a'
ptxas info    : Function properties for _Ztwo
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 130 registers, used 0 barriers
"""
    PTX = ".visible .entry _Zone(\n\t.param .b8 a[8]\n)\n.maxntid 256\n{\n}\n.visible .entry _Ztwo(\n)\n.maxntid 256, 1, 1\n{}\n"

    def test_reads_what_the_compiler_says(self):
        self.assertEqual(kernels.usage(self.REPORT), [("_Zone", "90", 0, 128), ("_Ztwo", "120a", 12, 130)])
        self.assertEqual(kernels.threads(self.PTX), {"_Zone": 256, "_Ztwo": 256})

    def test_complains_of_spills_and_registers(self):
        said = list(kernels.complaints(kernels.usage(self.REPORT), kernels.threads(self.PTX)))
        self.assertEqual(said, ["_Ztwo for sm_120a spills 12 bytes a thread; the limit is 8",
                                "_Ztwo for sm_120a uses 130 registers in 256 threads; the limit is 128"])


class Bare(unittest.TestCase):
    def test_keeps_lines_and_drops_comments_and_literals(self):
        source = 'int a; // {\n/* {\n{ */ char b = \'{\'; auto c = "{\\"{"; auto d = R"(\n{)"; int e = 1\'000;\n'
        code = sources.bare(source)
        self.assertEqual(code.count("\n"), source.count("\n"))
        self.assertNotIn("{", code)
        self.assertIn("1'000", code)


class Functions(unittest.TestCase):
    def lengths(self, source):
        return [last - first + 1 for first, last in sizes.functions(source)]

    def test_finds_functions_in_namespaces_and_classes(self):
        source = "namespace a {\nclass B : public C<D> {\n  int F() const {\n    return 1;\n  }\n};\nint G() {\n}\n}\n"
        self.assertEqual(self.lengths(source), [3, 2])

    def test_counts_a_lambda_as_part_of_its_function(self):
        self.assertEqual(self.lengths("void F() {\n  auto g = [] {\n  };\n  if (x) {\n  }\n}\n"), [6])

    def test_takes_a_struct_as_return_type_for_a_function(self):
        self.assertEqual(self.lengths("struct A F(int a) {\n\n}\n"), [3])

    def test_finds_the_body_of_a_constructor_after_its_initialisers(self):
        self.assertEqual(self.lengths("A::A(int b) : b_{b}, c_(b) {\n\n\n}\n")[-1], 4)

    def test_leaves_tables_alone(self):
        self.assertEqual(self.lengths("constexpr int kTable[] = {\n1,\n{2}\n};\nenum E {\nkA\n};\n"), [])


class Repetitions(unittest.TestCase):
    def test_finds_the_longest_run_in_two_files(self):
        lines = [(number, f"line{number}") for number in range(1, 31)]
        shifted = [(number + 5, line) for number, line in lines[2:27]]
        self.assertEqual(list(sizes.repetitions({"a": lines, "b": shifted})), [("a", 3, "b", 8, 25)])

    def test_finds_a_run_within_a_file(self):
        lines = [(number, f"line{number % 25}") for number in range(50)]
        self.assertEqual(list(sizes.repetitions({"a": lines})), [("a", 0, "a", 25, 25)])

    def test_lets_short_runs_pass(self):
        lines = [(number, f"line{number}") for number in range(19)]
        self.assertEqual(list(sizes.repetitions({"a": lines, "b": lines})), [])


class Names(unittest.TestCase):
    def test_knows_which_classes_a_file_defines(self):
        source = ("namespace a {\nclass Declared;\nclass One final : public B {\n  struct Inner {};\n};\nnamespace {\nstruct Own {\n};\n}  // namespace\n"
                  "struct One::State {\n};\nenum class Two { kA };\ntemplate <typename T>\nclass PTQWATCH_EXPORT Three\n    : public B {\n};\n}  // namespace a\n")
        self.assertEqual(list(names.classes(source)), [("a", "One"), ("", "Own"), ("a", "Two"), ("a", "Three")])

    def test_complains_of_a_name_in_two_files_that_meet(self):
        define = "namespace ptqwatch::{} {{\nstruct A {{\n}};\n}}  // namespace ptqwatch\n".format
        self.assertEqual(list(names.check_names({"a.h": define("internal"), "b.h": define("internal"), "c.h": define("python")})),
                         ["ptqwatch::internal::A is defined in a.h and in b.h"])
        self.assertEqual(list(names.check_names({"a.h": define("tools"), "b.h": define("tools")})), [])


class Rooms(unittest.TestCase):
    def test_knows_rooms(self):
        self.assertEqual(includes.room_of("libmonitor/include/ptqwatch/offline/nf4.h"), "public")
        self.assertEqual(includes.room_of("libmonitor/quantize/kernels/gram.h"), "quantize")
        self.assertEqual(includes.room_of("libmonitor/base/log.cc"), "base")
        self.assertIsNone(includes.room_of("tools/ptqwatch/main.cc"))

    def test_sees_sockets(self):
        for call in ("socket(AF_INET", "::bind(fd", " getaddrinfo(host", "=Listen(address"):
            self.assertTrue(includes.SOCKET.search(call), call)
        for other in ("std::bind(f", "server.listen(", "unix_socket(", "CanListen("):
            self.assertFalse(includes.SOCKET.search(other), other)

    def test_follows_includes(self):
        self.assertIn("libmonitor/base/mutex.h", sources.seen_by("libmonitor/base/log.cc"))
        self.assertIn("condition_variable", sources.seen_by("libmonitor/base/log.cc"))


class CompileCommands(unittest.TestCase):
    def test_commands_of_a_unity_file_are_those_of_its_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            unity = pathlib.Path(folder, "Unity/unity_0.cxx")
            unity.parent.mkdir()
            unity.write_text('/* generated */\n#include "/a/b.cc"\n#include "/a/x/../c.cc"\n')
            pathlib.Path(folder, "compile_commands.json").write_text(json.dumps(
                [{"file": str(unity), "command": "c++ unity"}, {"file": "/a/d.cc", "command": "c++ d"}]))
            self.assertEqual([(str(file), command) for file, command in sources.compile_commands(folder)],
                             [("/a/b.cc", "c++ unity"), ("/a/c.cc", "c++ unity"), ("/a/d.cc", "c++ d")])


if __name__ == "__main__":
    unittest.main()
