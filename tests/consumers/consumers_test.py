#!/usr/bin/env python3
"""consumers_test.py BUILD_DIR GROUP: installs the build into a folder of its own, and builds and runs trainers against it as users do."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from beside import eventually  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
EXAMPLE = SOURCE / "examples/minimal/main.cc"
BUILD = pathlib.Path(sys.argv[1]).resolve()
WORK = BUILD / "consumers"
PREFIX = WORK / "installed"


def run(*command, folder=WORK, fails=False, **environment):
    """What the command prints. It must end with 0, or with another number if it `fails`."""
    done = subprocess.run([str(part) for part in command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | environment, timeout=3000)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def install():
    shutil.rmtree(PREFIX, ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", PREFIX, folder=SOURCE)


def configure(project, folder, *flags, fails=False):
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if (ccache := shutil.which("ccache")) else []
    shutil.rmtree(WORK / folder, ignore_errors=True)
    return run("cmake", "-G", "Ninja", "-S", HERE / project, "-B", WORK / folder, f"-DEXAMPLE={EXAMPLE}", *launcher, *flags, fails=fails)


def run_minimal(program, **environment):
    with tempfile.TemporaryDirectory() as folder:
        said = run(program, folder=folder, **environment)
        journal = pathlib.Path(folder, "runs/minimal/journal.jsonl").read_text().splitlines()
    assert said.strip() and journal, said


def strange_cuda_libraries(program, **environment):
    """The CUDA libraries of a program that are not those that LibTorch brings, if it brings any."""
    loaded = re.findall(r"=> (/\S+)", run("ldd", program, **environment))
    torch = next(pathlib.Path(path).parent for path in loaded if "/libc10.so" in path)
    brought = {path.resolve() for path in [torch, *torch.glob("../../nvidia/*/lib")]}
    cuda = [path for path in map(pathlib.Path, loaded) if re.match(r"lib(cublas|cublasLt|cusolver|cusparse|cudart|nvJitLink)\.", path.name)]
    return [str(path) for path in cuda if path.parent.resolve() not in brought] if len(brought) > 1 else []


SERVED = r"metrics http://127\.0\.0\.1:\d+/metrics\ngrpc 127\.0\.0\.1:\d+\n"


def run_raw_arrays(program, **environment):
    with tempfile.TemporaryDirectory() as folder:
        said = run(program, folder=folder, **environment)
    assert "step 200" in said, said
    return said


def run_without_program(program):
    """What a trainer says that is told to fail if no server can be started."""
    with tempfile.TemporaryDirectory() as folder:
        return run(program, folder=folder, fails=True)


class CMake(unittest.TestCase):
    def build_and_run(self, linkage):
        configure("cmake", linkage, f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DLINKAGE={linkage}")
        run("cmake", "--build", WORK / linkage, "-j2")
        self.assertEqual(strange_cuda_libraries(WORK / linkage / "minimal"), [])
        with tempfile.TemporaryDirectory() as folder:
            run(WORK / linkage / "minimal", folder=folder)
            server = subprocess.Popen([BUILD / "bin/ptqwatch", "serve", "runs/minimal", "--http", "off", "--grpc", "127.0.0.1:0"],
                                      cwd=folder, text=True, stdout=subprocess.PIPE)
            try:
                address = server.stdout.readline().removeprefix("grpc ").strip()
                def client():
                    return subprocess.run([WORK / linkage / "client", address], text=True, capture_output=True, timeout=60)

                # Until the server has read the journal, it knows no run.
                done = eventually(lambda: (done := client()).returncode == 0 and done, lambda: client().stderr)
                self.assertRegex(done.stdout, r"(step \d+: \w+\n)+")
            finally:
                server.terminate()
                server.wait(30)
                server.stdout.close()
        self.assertRegex(run(WORK / linkage / "server"), r"gptq: gRPC at 127\.0\.0\.1:\d+, HTTP at 127\.0\.0\.1:\d+\n")

    def test_static(self):
        self.build_and_run("static")
        program = WORK / "static/raw_arrays"
        self.assertRegex(run_raw_arrays(program, PATH=f"{PREFIX}/bin:{os.environ['PATH']}"), SERVED)
        self.assertIn("no program `ptqwatch`", run_without_program(program))

    def test_trainer_links_no_server(self):
        configure("cmake", "closure", f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DLINKAGE=static")
        commands = run("ninja", "-C", WORK / "closure", "-t", "commands", "minimal")
        link = next(line for line in reversed(commands.splitlines()) if " -o minimal " in line)
        self.assertNotRegex(link, "grpc|protobuf|prometheus|ssl|crypto|boost|libz")

    def test_shared(self):
        self.build_and_run("shared")
        self.assertRegex(run_raw_arrays(WORK / "shared/raw_arrays"), SERVED)  # the program lies beside the library
        needed = run("readelf", "-d", WORK / "shared/raw_arrays")
        self.assertRegex(needed, r"libptqwatch\.so\.\d+\.\d+\]")

    def test_one_wish_at_a_time(self):
        said = configure("cmake", "wrong", f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DLINKAGE=static;shared", fails=True)
        self.assertIn("both static and shared", said)

    def test_unknown_component(self):
        said = configure("cmake", "wrong", f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DLINKAGE=promethius", fails=True)
        self.assertRegex(said, r"no component\s+'promethius'")

    def test_old_abi(self):
        said = configure("cmake", "wrong", f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DCMAKE_CXX_FLAGS=-D_GLIBCXX_USE_CXX11_ABI=0", fails=True)
        self.assertRegex(said, r"C\+\+11\s+ABI")

    def test_another_libtorch(self):
        root = WORK / "another_libtorch"
        for file, text in {"lib/libtorch_cpu.so": "", "lib/libc10.so": "", "include/ATen/core/Tensor.h": "",
                           "share/cmake/Torch/TorchConfig.cmake": "",
                           "include/torch/headeronly/version.h": "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 7\n"
                                                                  "#define TORCH_VERSION_PATCH 0\n"}.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
        said = configure("cmake", "wrong", f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DTorch_DIR={root}/share/cmake/Torch", fails=True)
        self.assertRegex(" ".join(said.split()), r"was built with LibTorch [\d.]+, but \S+ is 2\.7\.0")


class PkgConfig(unittest.TestCase):
    def test_makefile(self):
        folder = WORK / "make"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(HERE / "make", folder)
        libdir = next(PREFIX.glob("lib/**/pkgconfig")).parent
        run("make", f"EXAMPLE={EXAMPLE}", folder=folder, PKG_CONFIG_PATH=str(libdir / "pkgconfig"))
        self.assertEqual(strange_cuda_libraries(folder / "minimal", LD_LIBRARY_PATH=str(libdir)), [])
        run_minimal(folder / "minimal", LD_LIBRARY_PATH=str(libdir))
        run("make", "-B", f"EXAMPLE={HERE / 'raw_arrays.cc'}", folder=folder, PKG_CONFIG_PATH=str(libdir / "pkgconfig"))
        self.assertRegex(run_raw_arrays(folder / "minimal", LD_LIBRARY_PATH=str(libdir)), SERVED)


@unittest.skipUnless(shutil.which("cpack") and shutil.which("dpkg-deb"), "no Debian tools")
class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = WORK / "packages"
        shutil.rmtree(cls.folder, ignore_errors=True)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder)
        cls.packages = sorted(cls.folder.glob("*.deb"))
        cls.root = cls.folder / "root"
        for package in cls.packages:
            run("dpkg-deb", "-x", package, cls.root)

    def test_are_four(self):
        self.assertEqual([package.name.split("_")[0] for package in self.packages],
                         ["libptqwatch-dev", "libptqwatch0.1", "ptqwatch-trajectory", "ptqwatch"])

    def test_can_be_installed_with_what_debian_has(self):
        said = run("apt-get", "-s", "install", "--no-install-recommends", *self.packages)
        for package in ("libptqwatch0.1", "libptqwatch-dev", "ptqwatch", "ptqwatch-trajectory"):
            self.assertRegex(said, rf"Inst {package} ")

    def test_serve_a_trainer(self):
        configure("cmake", "packaged", f"-DCMAKE_PREFIX_PATH={self.root}/usr", "-DLINKAGE=shared")
        run("cmake", "--build", WORK / "packaged", "-j2")
        self.assertRegex(run_raw_arrays(WORK / "packaged/raw_arrays"), SERVED)
        program = self.root / "usr/bin/ptqwatch"
        program.rename(program.with_suffix(".away"))  # the library's package alone
        self.addCleanup(program.with_suffix(".away").rename, program)
        self.assertIn("install the package `ptqwatch`", run_without_program(WORK / "packaged/raw_arrays"))

    def test_commands_run(self):
        self.assertRegex(run(self.root / "usr/bin/ptqwatch", "--version"), r"\d+\.\d+\.\d+")
        for file in ("prometheus/alerts.yml", "grafana/ptqwatch-overview.json", "grafana/generate"):
            self.assertTrue((self.root / "usr/share/ptqwatch/dashboards" / file).exists(), file)

    def test_trajectory_finds_libtorch_by_the_path_of_the_linker(self):
        program = self.root / "usr/bin/ptqwatch"
        self.assertNotIn("RUNPATH", run("readelf", "-d", self.root / "usr/bin/ptqwatch-trajectory"))
        self.assertIn("libtorch_cpu.so", run(program, "trajectory", "--help", fails=True, LD_LIBRARY_PATH=""))
        torch = pathlib.Path(re.search(r"=> (/\S+)/libtorch_cpu\.so", run("ldd", BUILD / "bin/ptqwatch-trajectory"))[1])
        folders = [torch, *torch.glob("../../nvidia/*/lib")]
        self.assertIn("--schedule", run(program, "trajectory", "--help", LD_LIBRARY_PATH=":".join(map(str, folders))))
        said = run("dpkg-deb", "-f", next(package for package in self.packages if "trajectory" in package.name), "Description")
        self.assertRegex(" ".join(said.split()), r"needs LibTorch 2\.[\d.]+, which is in no Debian package: LD_LIBRARY_PATH")

    def test_have_a_manual_page_for_each_command(self):
        program = self.root / "usr/bin/ptqwatch"
        listed = run(program, "--help").split("Subcommands:\n")[1].split("\n\n")[0]
        commands = [line.split()[0] for line in listed.splitlines()]
        pages = self.root / "usr/share/man/man1"
        self.assertCountEqual([page.name for page in pages.iterdir()],
                              ["ptqwatch.1.gz", *(f"ptqwatch-{command}.1.gz" for command in commands)])
        self.assertIn(r"ptqwatch-watch \- Follow a run", gzip.open(pages / "ptqwatch-watch.1.gz", "rt").read())
        page = gzip.open(pages / "ptqwatch-trajectory.1.gz", "rt").read()
        self.assertIn(r"ptqwatch-trajectory \- Measure the checkpoints", page)
        self.assertIn("LD_LIBRARY_PATH", page)

    def test_say_what_they_are_licensed_under(self):
        for package in ("libptqwatch0.1", "libptqwatch-dev", "ptqwatch", "ptqwatch-trajectory"):
            self.assertIn("Apache-2.0", (self.root / "usr/share/doc" / package / "copyright").read_text())

    @unittest.skipUnless(shutil.which("lintian"), "no lintian")
    def test_lintian_finds_no_error(self):
        with tempfile.TemporaryDirectory() as left:  # lintian leaves files
            run("lintian", "--allow-root", "--fail-on", "error", *self.packages, TMPDIR=left)


def configure_subproject():
    # With the flags of this build ccache has most of it.
    werror = re.search(r"^PTQWATCH_WERROR:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    return configure("subproject", "subproject", f"-DPTQWATCH_SOURCE={SOURCE}", "-DCMAKE_BUILD_TYPE=Release", f"-DPTQWATCH_WERROR={werror}")


class Subproject(unittest.TestCase):
    def test_looks_for_what_the_monitor_needs_alone(self):
        said = configure_subproject()
        for package in ("gRPC", "Protobuf", "prometheus", "OpenSSL", "Boost"):
            self.assertNotIn(package, said)


class FetchContent(unittest.TestCase):
    def test_monitor_alone(self):
        configure_subproject()
        run("cmake", "--build", WORK / "subproject", "-j2")
        run_minimal(WORK / "subproject/minimal")
        self.assertIn("build the target `ptqwatch`", run_without_program(WORK / "subproject/raw_arrays"))


def compiler_flags():
    return run("pkg-config", "--cflags", "ptqwatch", PKG_CONFIG_PATH=str(next(PREFIX.glob("lib/**/pkgconfig")))).split()


class Docs(unittest.TestCase):
    """Every block of code in the documents is compiled."""

    def pages(self):
        return [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md")),
                *sorted((SOURCE / "dashboards/runbooks").glob("*.md"))]

    def blocks(self):
        """(page, language, text, the function that the comment above puts it in)"""
        for page in self.pages():
            for match in re.finditer(r"(?:<!-- inside: ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
                yield page.name, match[2], match[3], match[1]

    def test_cpp_compiles(self):
        flags = compiler_flags()
        seen = 0
        for page, language, text, inside in self.blocks():
            if language != "cpp" or text == EXAMPLE.read_text():
                continue
            includes = [line for line in text.splitlines() if line.startswith("#include")]
            body = [line for line in text.splitlines() if not line.startswith("#include")]
            with self.subTest(page=page):
                self.assertIsNotNone(inside, "no comment `<!-- inside: ... -->` says what is around it")
                source = WORK / "block.cc"
                source.write_text("\n".join([*includes, inside + " {", *body, "" if inside.startswith("void") else "return {};", "}"]))
                run("c++", "-std=c++20", "-fsyntax-only", *flags, source)
                seen += 1
        self.assertGreaterEqual(seen, 2)

    def test_cmake_is_that_of_the_consumers(self):
        lines = {re.sub(r"\s+#.*", "", line).strip() for _, language, text, _ in self.blocks() if language == "cmake" for line in text.splitlines()}
        self.assertEqual(lines, {"add_subdirectory(ptqwatch)", "target_link_libraries(trainer PRIVATE ptqwatch::monitor)",
                                 "find_package(ptqwatch 0.1 CONFIG REQUIRED COMPONENTS monitor)"}, "add what is new to tests/consumers")


NOT_SHARED = """
#include "ptqwatch/module_subject.h"
struct Net : torch::nn::Module {};
template <typename Model>
void Pass(const Model& model) {
  ptqwatch::MakeModuleSubject(model, {.replica = [] { return std::make_shared<Net>(); },
                                      .losses = [](auto&, const ptqwatch::Batch& batch) { return batch[0]; }});
}
void Example() {
  Net net;
  Pass(net);
  Pass(&net);
  Pass(std::make_unique<Net>());
}
"""


class Mistakes(unittest.TestCase):
    def test_a_model_that_cannot_be_shared(self):
        source = WORK / "not_shared.cc"
        source.write_text(NOT_SHARED)
        said = run("c++", "-std=c++20", "-fsyntax-only", *compiler_flags(), source, fails=True)
        refused = re.findall(r"static assertion failed: MakeModuleSubject needs the model as a std::shared_ptr<Net> or as a ModuleHolder", said)
        self.assertEqual(len(refused), 3, said)


class Symbols(unittest.TestCase):
    def exported(self, library):
        path = next(PREFIX.glob(f"lib/**/lib{library}.so"))
        return [line.split(maxsplit=2)[2] for line in run("nm", "-D", "-C", "--defined-only", path).splitlines()]

    def test_nothing_but_our_own(self):
        for library in ("ptqwatch", "ptqwatch_serve"):
            foreign = [name for name in self.exported(library)
                       if not re.match(r"((vtable|typeinfo|typeinfo name|VTT) for )?ptqwatch::", name)]
            self.assertEqual(foreign, [], library)

    def test_no_internals_of_the_monitor(self):
        shared_with_serve = [name for name in self.exported("ptqwatch") if "ptqwatch::internal" in name]
        self.assertLess(len(shared_with_serve), 120)
        for name in self.exported("ptqwatch_serve"):
            self.assertNotRegex(name, "ptqwatch::(internal|v1)")

    def test_grpc_is_inside(self):
        needed = run("readelf", "-d", next(PREFIX.glob("lib/**/libptqwatch_serve.so")))
        self.assertNotIn("libgrpc", needed)

    def test_trainer_with_its_own_messages(self):
        for linkage in ("static", "shared"):
            with self.subTest(linkage=linkage):
                folder = f"own_protobuf_{linkage}"
                configure("own_protobuf", folder, f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DLINKAGE={linkage}")
                run("cmake", "--build", WORK / folder, "-j2")
                self.assertIn("trainer.Report of the trainer", run(WORK / folder / "own_protobuf"))


if __name__ == "__main__":
    WORK.mkdir(parents=True, exist_ok=True)
    install()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
