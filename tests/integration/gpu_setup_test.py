#!/usr/bin/env python3
"""gpu_setup_test.py GROUP: what configuring and ./setup say of toolkits, drivers and machines of every kind, real and pretended."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DECIDE = f"""cmake_minimum_required(VERSION 3.25)
project(decide CXX)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")
set(PTQWATCH_CUDA AUTO CACHE STRING "")
set(PTQWATCH_WITH_TORCH ON)
set(LibTorch_ROOT /a/torch)
include(CudaToolkit)
ptqwatch_decide_gpu(have)
message(STATUS "decided ${{have}}")
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def said(self, command, ends=0, **environment):
        done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {name: str(value) for name, value in environment.items()}, timeout=120)
        self.assertEqual(done.returncode, ends, done.stdout)
        return " ".join(done.stdout.split())  # CMake breaks the lines of a warning


class Configure(Folder):
    def decide(self, *flags, torch=True, ends=0):
        (self.folder / "CMakeLists.txt").write_text(DECIDE)
        return self.said(["cmake", "-S", self.folder, "-B", self.folder / "build", f"-DLibTorch_HAS_CUDA={torch}", *flags], ends)

    def toolkit(self, version):
        """A toolkit whose nvcc knows its version alone."""
        self.program("cuda/bin/nvcc", f'[ "$1" = --version ] && echo "Cuda compilation tools, release x, V{version}.1" || exit 1')
        for file in ("include/cuda_runtime.h", *(f"lib64/lib{library}.so" for library in ("cudart", "cublas"))):
            path = self.folder / "cuda" / file
            path.parent.mkdir(exist_ok=True)
            path.touch()
        return f"-DCUDAToolkit_ROOT={self.folder}/cuda"

    def test_no_toolkit(self):
        absent = "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"
        said = self.decide(absent)
        self.assertIn("-- ptqwatch: without GPU support: there is no CUDA toolkit CMake Warning", said)
        self.assertRegex(said, r"Warning.*LibTorch has CUDA, but ptqwatch is built WITHOUT GPU support: there is no CUDA toolkit\..*"
                               r"Install CUDA 12\.4 or later with nvcc.*decided OFF")
        said = self.decide(absent, torch=False)
        self.assertIn("without GPU support: there is no CUDA toolkit", said)
        self.assertNotIn("Warning", said)
        self.assertRegex(self.decide(absent, "-DPTQWATCH_CUDA=ON", ends=1),
                         r"PTQWATCH_CUDA=ON cannot be met: there is no CUDA toolkit\. It needs CUDA 12\.4")
        said = self.decide(absent, "-DPTQWATCH_CUDA=OFF")
        self.assertIn("without GPU support: PTQWATCH_CUDA is OFF", said)
        self.assertNotIn("Warning", said)

    def test_an_old_toolkit(self):
        said = self.decide(self.toolkit("12.3"))
        self.assertRegex(said, r"-- ptqwatch: without GPU support: the CUDA toolkit in \S*/cuda/bin is 12\.3\.1, older than 12\.4 .*Warning")

    def test_a_compiler_that_does_not_work(self):
        self.assertRegex(self.decide(self.toolkit("12.4")), r"without GPU support: \S*/cuda/bin/nvcc does not work, see \S*/output\.txt")

    @unittest.skipUnless(shutil.which("nvcc"), "no nvcc")
    def test_a_toolkit_that_works(self):
        self.assertRegex(self.decide(), r"-- ptqwatch: with GPU support: CUDA \S+ for 80-real;.*, and LibTorch in /a/torch has CUDA -- decided ON")
        self.assertRegex(self.decide(torch=False), r"-- ptqwatch: the GPU engine alone, with CUDA \S+: LibTorch in /a/torch has no CUDA -- decided OFF")

    @unittest.skipUnless(shutil.which("nvcc"), "no nvcc")
    def test_a_libtorch_for_another_cuda(self):
        said = self.decide("-DLibTorch_CUDA_MAJOR=11")
        self.assertRegex(said, r"-- ptqwatch: the GPU engine alone, with CUDA \S+: LibTorch in /a/torch was built for CUDA 11, the toolkit in \S+ is ")
        self.assertRegex(said, r"Warning.*WITHOUT GPU support: LibTorch in /a/torch was built for CUDA 11.*Install a toolkit of CUDA 11, set.*decided OFF")
        self.assertRegex(self.decide("-DLibTorch_CUDA_MAJOR=11", "-DPTQWATCH_CUDA=ON", ends=1), "PTQWATCH_CUDA=ON cannot be met: LibTorch in /a/torch")

    def test_architectures_are_those_that_the_toolkit_knows(self):
        script = self.folder / "architectures.cmake"
        script.write_text(f'set(PTQWATCH_CUDA OFF)\ninclude("{ROOT}/cmake/CudaToolkit.cmake")\nforeach(version 12.4 12.6 12.8 13.0)\n'
                          '  ptqwatch_cuda_architectures(${version} names)\n  message(STATUS "${names}")\nendforeach()\n')
        old, new = "80-real;86-real;89-real;90", "80-real;86-real;89-real;90-real;100"
        self.assertEqual(self.said(["cmake", "-P", script]), f"-- {old} -- {old} -- {new} -- {new}")

    def test_refuses_other_processors(self):
        said = self.said(["cmake", "-S", ROOT, "-B", self.folder / "build", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=riscv64"], 1)
        self.assertIn("ptqwatch builds on x86-64 and aarch64, not on riscv64.", said)


class Setup(Folder):
    def check(self, driver, ends=1, *flags):
        """What ./setup would download on a machine with a toolkit and this driver."""
        self.program("bin/nvcc", "exit 1")
        self.program("bin/nvidia-smi", driver)
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": self.folder / "cache", "Torch_DIR": ""}
        return self.said([ROOT / "setup", "--for", "build", "--check", *flags], ends, **environment)

    def test_an_old_driver(self):
        said = self.check("echo 550.54.15")
        self.assertRegex(said, r"driver 550\.54\.15 is older than 580, which LibTorch for CUDA 13 needs: taking LibTorch without CUDA\. "
                               r"For GPUs update the driver, or set Torch_DIR to a LibTorch for CUDA 12 .*missing LibTorch: \S*-cpu$")

    def test_a_new_driver(self):
        said = self.check("echo 580.65.06")
        self.assertNotIn("driver", said)
        self.assertRegex(said, r"missing LibTorch: \S*-cuda$")

    def test_no_driver(self):
        said = self.check("echo NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver; exit 9")
        self.assertRegex(said, r"missing LibTorch: \S*-cuda$")

    def test_refuses_other_processors(self):
        self.program("bin/uname", "echo riscv64")
        self.assertEqual(self.check("exit 1"), "setup: ptqwatch builds on x86-64 and aarch64, not on riscv64")

    def test_another_libtorch(self):
        self.assertRegex(self.check("echo 580.65.06", 1, "--torch", "2.8.0"), r"missing LibTorch: \S*/libtorch-2\.8\.0-cuda$")
        self.assertEqual(self.check("exit 1", 2, "--torch", "2.8"), "setup: --torch needs a version such as 2.8.0, not '2.8'")


if __name__ == "__main__":
    group = sys.argv.pop()
    unittest.main(defaultTest=group)
