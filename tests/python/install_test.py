#!/usr/bin/env python3
"""The lines of docs/python.md in a fresh virtual environment: install_test.py SOURCE_DIR

`pip install .` with the PyTorch and NumPy that ./setup has installed, then `python examples/python/minimal.py`. pip fetches its build
backend from PyPI. Exits with 77 ("skipped") without that PyTorch, without Python's headers or if PyPI does not answer."""

import glob
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv

SKIPPED = 77
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ptqwatch"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def run(*command, timeout=1500, **options):
    began = time.monotonic()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **options)
    print(f"{' '.join(str(word) for word in command)}: {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode, done.stdout


def expect(truth, what, output):
    if not truth:
        sys.exit(f"{what}:\n{output[-6000:]}")


def main(source):
    torch = sorted(glob.glob(str(CACHE / "libtorch-*-cuda")))[-1:]
    if not torch:
        skip("no PyTorch that can be imported; ./setup installs it on a machine with CUDA's compiler")
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        skip("no headers of Python")
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "Torch_DIR")}
        environment["CMAKE_BUILD_PARALLEL_LEVEL"] = os.environ.get("PTQWATCH_JOBS", "2")
        # The compiler's name as in the other builds, and paths that do not depend on the folder, so that ccache has what they compiled.
        environment.setdefault("CXX", "c++")
        environment.setdefault("CCACHE_BASEDIR", source)
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder, "bin/python")
        (packages,) = pathlib.Path(folder).glob("lib/python*/site-packages")

        # Before torch is there.
        status, output = run(python, "-m", "pip", "install", "--no-deps", source, env=environment)
        if "No matching distribution found for scikit-build-core" in output:
            skip(f"PyPI does not answer:\n{output[-1000:]}")
        advice = "There is no torch in the environment of"
        expect(status != 0 and advice in output and "pip install 'torch==2.11.*'" in output, "pip install without torch", output)

        (packages / "installed_by_setup.pth").write_text(f"{torch[0]}\n{CACHE / 'python-quantize'}\n")
        status, output = run(python, "-m", "pip", "install", source, env=environment)
        expect(status == 0, "pip install .", output)
        status, output = run(python, "-c", "import ptqwatch, torch; print(ptqwatch.__version__, ptqwatch._program())",
                             cwd=folder, env=environment)
        expect(status == 0 and output.split()[1:] == [str(pathlib.Path(folder).resolve() / "bin/ptqwatch")], "import ptqwatch", output)
        for name in ("py.typed", "_native.pyi", "_build.py"):
            expect((packages / "ptqwatch" / name).exists(), f"the package has no {name}", "")
        status, output = run(pathlib.Path(folder, "bin/ptqwatch"), "--help", env=environment)
        expect(status == 0 and "serve" in output, "ptqwatch --help", output)

        script = pathlib.Path(source, "examples/python/minimal.py")
        status, output = run(python, script, pathlib.Path(folder, "run"), cwd=folder, env=environment | {"OMP_NUM_THREADS": "1"}, timeout=300)
        expect(status == 0 and "gptq4: E = " in output and output.count("\n") >= 5, "examples/python/minimal.py", output)
        print(output)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
