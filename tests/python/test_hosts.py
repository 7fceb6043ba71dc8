"""Hosts of which none has the whole model: the first one measures, whatever happens to the others."""

import os
import signal

import pytest

from conftest import eventually
from shard_launch import Launch, state_of
from test_shard_faults import history

STEPS = 40


@pytest.fixture(scope="module")
def digest(forks, tmp_path_factory):
    """Of the weights at the last step, as one process has them."""
    folder = tmp_path_factory.mktemp("plain")
    return Launch(forks, folder / "launch", folder / "run", 1, steps=STEPS).end()[0]["report"]["snapshot_digest"]


@pytest.mark.parametrize("killed", [0, 2])
def test_a_process_that_is_killed_is_replaced(launch, digest, killed):
    """That which measures, and that which passes on."""
    ranks = launch(4, STEPS, hosts=2, every=4, pauses=[[0, 4], [0, 5]], worker={"first_pause": 0.1})
    ranks.await_pause(0, 4)
    eventually(lambda: 4 in ranks.steps(), 60)
    before = ranks.worker(killed)
    os.kill(before, signal.SIGKILL)
    ranks.go_on(0, 4)
    ranks.await_pause(0, 5)
    eventually(lambda: ranks.worker(killed) not in (None, before), 60)
    ranks.go_on(0, 5)
    results = ranks.end()
    assert all(result["finished"] for result in results), (results, [ranks.errors(rank)[-1500:] for rank in range(4)], ranks.events())
    assert ranks.steps()[-1] == STEPS and results[0]["report"]["snapshot_digest"] == digest
    assert not ranks.others() and not (ranks.run_dir / "shards").exists()


@pytest.mark.parametrize("stopped", [0, 2])
def test_training_waits_for_no_process(launch, digest, stopped):
    ranks = launch(4, STEPS, hosts=2, every=4, pauses=[[0, 4], [0, 30]])
    ranks.await_pause(0, 4)
    eventually(lambda: 4 in ranks.steps(), 60)
    worker = ranks.worker(stopped)
    os.kill(worker, signal.SIGSTOP)
    eventually(lambda: state_of(worker) == "T")
    ranks.go_on(0, 4)
    ranks.await_pause(0, 30)
    assert ranks.steps() == [4]
    os.kill(worker, signal.SIGCONT)
    ranks.go_on(0, 30)
    results = ranks.end()
    assert all(result["finished"] and result["slowest"] < 2 for result in results), (results, [ranks.errors(rank)[-1500:] for rank in range(4)], ranks.events())
    assert ranks.steps()[-1] == STEPS and results[0]["report"]["snapshot_digest"] == digest


@pytest.mark.parametrize("killed", [0, 3])
def test_a_rank_that_is_killed_takes_nobody_with_it(launch, killed):
    ranks = launch(4, 20, hosts=2, alone=[6, 100], signals=[[killed, 6, signal.SIGKILL]], pauses=[[killed, 2]], finish=0.5)
    ranks.await_pause(killed, 2)
    eventually(lambda: 2 in ranks.steps(), 60)
    ranks.go_on(killed, 2)
    for result in filter(None, ranks.end(killed=[killed])):
        assert not result["finished"] and result["finish_seconds"] < 0.5 + 2 + 1 and result["stop_seconds"] < 2 + 1
    eventually(lambda: not ranks.others(), 20)
    # What is left does not disturb the next launch.
    again = launch(4, 20, hosts=2)
    assert all(result["finished"] for result in again.end())
    assert again.steps()[-1] == 20
    assert not (again.run_dir / "shards").exists()


def test_a_run_goes_on_with_another_number_of_hosts(launch):
    """Its reports are those of one process that is not interrupted."""
    options = {"every": 4, "early": [100.0, *range(4, 25, 4)]}
    plain = launch(1, 24, "plain", **options)
    for hosts, first, last in ((2, 1, 8), (1, 9, 16), (4, 17, 24)):
        sharded = launch(4, last, hosts=hosts, first=first, **options)
        for result in sharded.end():
            assert result["finished"] and not result["failure"], result
    plain.end()
    assert sharded.status()["run"]["attempt"] == 3
    assert history(sharded.measured) == history(plain.run_dir)


def test_a_rank_without_memory_is_named_on_all_hosts(launch):
    results = launch(4, 8, hosts=2, memory=[3, 1 << 16]).end()
    for result in results:
        assert "no memory to share the weights with the monitor's process" in result["failure"], result
        assert result["start_seconds"] < 60
