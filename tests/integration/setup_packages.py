"""The packages that ./setup keeps for the tests."""

import glob
import os
import pathlib
import re

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ptqwatch")
FIND_LIBTORCH = pathlib.Path(__file__).resolve().parents[2] / "cmake/FindLibTorch.cmake"


def torch_folders():
    """The folders, one or none, from which Python imports the torch that CMake finds. One without CUDA's libraries cannot be imported."""
    if os.environ.get("Torch_DIR"):
        return [os.path.realpath(os.path.join(os.environ["Torch_DIR"], "../../../.."))]
    version = re.search(r"set\(_ptqwatch_default_torch (\S+)\)", FIND_LIBTORCH.read_text())[1]
    return sorted(glob.glob(os.path.join(CACHE, f"libtorch-{version}-*")), reverse=True)[:1]
