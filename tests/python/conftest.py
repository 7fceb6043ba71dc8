"""What the tests of the Python package share."""

import os
import pathlib

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def bin_dir():
    """The programs of the build; skips without one."""
    folder = pathlib.Path(os.environ.get("PTQWATCH_BUILD", "none")) / "bin"
    if not folder.is_dir():
        pytest.skip("PTQWATCH_BUILD names no build (tests/python/run sets it)")
    return folder
