"""What the tests of the Python package share."""

import itertools
import os
import pathlib
import textwrap
import time
import urllib.error
import urllib.request

import pytest
import torch

from forks import Forks

ROOT = pathlib.Path(__file__).resolve().parents[2]


def page_of(address, seconds=60):
    """What the server beside a run answers, as soon as it has found the run (until then, 503)."""
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as response:
                return response.read().decode()
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > until:
                raise
        time.sleep(0.01)


def eventually(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


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


@pytest.fixture
def launch(forks, tmp_path):
    """Starts the ranks of a sharded model (shard_fault_trainer.py), in one run directory unless told otherwise."""
    from shard_launch import Launch

    number, launches = itertools.count(), []

    def start(ranks, steps, run_dir="run", **options):
        launches.append(Launch(forks, tmp_path / f"launch{next(number)}", tmp_path / run_dir, ranks, steps=steps, **options))
        return launches[-1]

    yield start
    for each in launches:
        each.clear()
