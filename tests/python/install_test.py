#!/usr/bin/env python3
"""The package in a fresh virtual environment: install_test.py SOURCE_DIR install|wheel

With the PyTorch and NumPy that ./setup has installed. install: the lines of docs/python.md, `pip install .` and
`python examples/python/minimal.py`. wheel: the wheel that `pip wheel .` makes, in an environment that builds nothing. pip fetches its build
backend from PyPI. Exits with 77 ("skipped") without that PyTorch, without Python's headers or if PyPI does not answer."""

import glob
import os
import pathlib
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from setup_packages import CACHE, torch_folders

SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def expect(truth, what, output):
    if not truth:
        sys.exit(f"{what}:\n{output[-6000:]}")


class Environment:
    """A fresh virtual environment."""

    def __init__(self, folder, source):
        self.folder = pathlib.Path(folder).resolve()
        self.variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "Torch_DIR")}
        self.variables["CMAKE_BUILD_PARALLEL_LEVEL"] = os.environ.get("PTQWATCH_JOBS", "2")
        # The compiler's name as in the other builds, and paths that do not depend on the folder, so that ccache has what they compiled.
        self.variables.setdefault("CXX", "c++")
        self.variables.setdefault("CCACHE_BASEDIR", source)
        venv.create(folder, with_pip=True)
        (self.packages,) = self.folder.glob("lib/python*/site-packages")

    def run(self, program, *arguments, timeout=1500, **variables):
        """(exit status, output) of one of its programs."""
        began = time.monotonic()
        done = subprocess.run([str(self.folder / "bin" / program), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=timeout, cwd=self.folder, env=self.variables | variables)
        print(f"{program} {' '.join(map(str, arguments))}: {time.monotonic() - began:.0f} s", flush=True)
        return done.returncode, done.stdout

    def pip(self, *arguments):
        status, output = self.run("python", "-m", "pip", *arguments)
        if "No matching distribution found for scikit-build-core" in output:
            skip(f"PyPI does not answer:\n{output[-1000:]}")
        return status, output

    def add_torch(self):
        folders = [*torch_folders(), os.path.join(CACHE, "python-quantize")]
        (self.packages / "installed_by_setup.pth").write_text("\n".join(folders))

    def check_package(self, source):
        """Imports the package, and trains with it."""
        status, output = self.run("python", "-c", "import ptqwatch, torch; print(ptqwatch.__version__, ptqwatch._program())")
        expect(status == 0 and output.split()[1:] == [str(self.folder / "bin/ptqwatch")], "import ptqwatch", output)
        for name in ("py.typed", "_native.pyi", "_build.py"):
            expect((self.packages / "ptqwatch" / name).exists(), f"the package has no {name}", "")
        status, output = self.run("ptqwatch", "--help")
        expect(status == 0 and "serve" in output, "ptqwatch --help", output)
        status, output = self.run("python", pathlib.Path(source, "examples/python/minimal.py"), self.folder / "run", timeout=300,
                                  OMP_NUM_THREADS="1")
        expect(status == 0 and "gptq4: E = " in output and output.count("\n") >= 5, "examples/python/minimal.py", output)
        print(output)


def check_install(source, folder):
    environment = Environment(folder, source)
    status, output = environment.pip("install", "--no-deps", source)
    advice = "There is no torch in the environment of"
    said = " ".join(output.split())  # CMake breaks lines
    expect(status != 0 and advice in said and "pip install 'torch>=2.8,<2.16'" in said, "pip install without torch", output)
    environment.add_torch()
    status, output = environment.pip("install", source)
    expect(status == 0, "pip install .", output)
    environment.check_package(source)


def check_wheel(source, folder):
    builder = Environment(pathlib.Path(folder, "builder"), source)
    builder.add_torch()
    status, output = builder.pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    wheels = glob.glob(str(pathlib.Path(folder, "*.whl")))
    expect(status == 0 and len(wheels) == 1, "pip wheel .", output)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    expect(re.fullmatch(rf"ptqwatch-[\d.]+-{tag}-{tag}-linux_{platform.machine()}\.whl", os.path.basename(wheels[0])), "the wheel's name", wheels[0])
    names = zipfile.ZipFile(wheels[0]).namelist()
    strange = [name for name in names if not re.match(r"ptqwatch/|ptqwatch-[\d.]+\.(data/scripts/ptqwatch$|dist-info/)", name)]
    expect(not strange, "the wheel also has", "\n".join(strange))
    print(f"{os.path.basename(wheels[0])}: {len(names)} files, {os.path.getsize(wheels[0]) / 1e6:.1f} MB", flush=True)

    user = Environment(pathlib.Path(folder, "user"), source)
    user.add_torch()
    status, output = user.pip("install", "--no-index", "--no-deps", wheels[0])
    expect(status == 0, "pip install WHEEL", output)
    user.check_package(source)


def main(source, kind):
    if not torch_folders() or not os.path.isdir(os.path.join(CACHE, "python-quantize")):
        skip("no PyTorch that can be imported; ./setup installs it on a machine with CUDA's compiler")
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        skip("no headers of Python")
    with tempfile.TemporaryDirectory() as folder:
        {"install": check_install, "wheel": check_wheel}[kind](source, folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
