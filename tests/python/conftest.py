"""What the tests of the Python package share."""

import itertools
import os
import pathlib
import textwrap

import pytest
import torch

from forks import Forks

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def forks():
    made = Forks()
    yield made
    made.close()


@pytest.fixture
def start_script(forks, tmp_path):
    """Starts the text of a script with arguments. Its function `end` waits, expects exit status 0 and gives what it printed."""
    number = itertools.count()

    def start(text, *arguments):
        script = tmp_path / f"script{next(number)}.py"
        script.write_text(textwrap.dedent(text))
        with open(os.devnull) as nothing, open(f"{script}.out", "w") as out, open(f"{script}.err", "w") as err:
            process = forks.start([script, *arguments], tmp_path, os.environ, [nothing.fileno(), out.fileno(), err.fileno()])

        def end():
            assert process.wait() == 0, pathlib.Path(f"{script}.err").read_text()
            return pathlib.Path(f"{script}.out").read_text()

        process.end = end
        return process

    return start


@pytest.fixture
def bin_dir():
    """The programs of the build; skips without one."""
    folder = pathlib.Path(os.environ.get("PTQWATCH_BUILD", "none")) / "bin"
    if not folder.is_dir():
        pytest.skip("PTQWATCH_BUILD names no build (tests/python/run sets it)")
    return folder
