"""Published packages that our numbers are compared with: installed once into ./setup's cache, without what they do not need."""

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from setup_packages import CACHE, torch_folders

REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "requirements")


def install(name):
    """Has exactly the packages of requirements/`name`.txt in the cache's folder `name` and gives its path."""
    folder = os.path.join(CACHE, name)
    packages = os.path.join(REQUIREMENTS, f"{name}.txt")
    contents = os.path.join(folder, "contents")
    with open(packages, "rb") as file:
        wanted = f"{hashlib.sha256(file.read()).hexdigest()} for {sys.implementation.cache_tag}"
    if os.path.exists(contents):
        with open(contents) as file:
            if file.read() == wanted:
                return folder
    print(f"installing {packages} into {folder}", flush=True)
    partial = f"{folder}.partial"
    for old in (partial, folder):
        shutil.rmtree(old, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
                    "--no-compile", "--no-deps", "--only-binary", ":all:", "--no-binary", "gptqmodel,logbar,device-smi", "--require-hashes",
                    "--target", partial, "-r", packages], check=True)
    with open(os.path.join(partial, "contents"), "w") as file:
        file.write(wanted)
    os.rename(partial, folder)
    return folder


def use(folder=None, build=None):
    """Puts `folder`, and the Python package of the build `build`, on the path, before ./setup's PyTorch and what goes with it. One
    thread."""
    pytorch = torch_folders()
    packages = os.path.join(CACHE, "python-quantize")
    if not pytorch or not os.path.isdir(packages):
        sys.exit(f"no PyTorch or no {packages}; ./setup makes them on a machine with CUDA's compiler")
    own = [] if build is None else [os.path.join(os.path.abspath(build), "python")]
    if own and not glob.glob(os.path.join(own[0], "ptqwatch", "_native*")):
        sys.exit(f"{build} has no Python package (see the output of cmake)")
    sys.path[:0] = [*([folder] if folder else []), *own, packages, *pytorch]
    warnings.filterwarnings("ignore")
    # Before PyTorch is loaded: its BLAS reads it then.
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    torch.set_num_threads(1)


def in_turn(repeats, *works):
    """(the CPU seconds of all runs, for each of `works`; their last results)"""
    seconds, results = [[] for _ in works], [None] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            start = time.process_time()
            results[place] = work()
            seconds[place].append(time.process_time() - start)
    return seconds, results


def least_seconds(repeats, work):
    """(the least CPU seconds, the last result)"""
    least = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        least = min(least, time.process_time() - start)
    return least, result
