"""Faults of ranks of a sharded model that take long to notice."""

import os
import signal

import pytest

from conftest import eventually
from shard_launch import state_of


def test_a_snapshot_is_dropped_if_a_rank_is_late(launch):
    ranks = launch(2, 26, every=4, alone=[3, 20], signals=[[1, 4, signal.SIGSTOP]], pauses=[[0, 10], [0, 20]])
    ranks.await_pause(0, 10)
    eventually(lambda: any("step 4 is incomplete: rank 1 did not arrive within 60 s" in event for event in ranks.events()))
    ranks.go_on(0, 10)
    ranks.await_pause(0, 20)
    assert state_of(ranks.processes[1].pid) == "T"
    os.kill(ranks.processes[1].pid, signal.SIGCONT)
    ranks.go_on(0, 20)
    assert all(result["finished"] for result in ranks.end())
    assert ranks.status()["status"]["snapshots"]["incomplete"] >= 1
    assert 4 not in ranks.steps() and ranks.steps()[-1] == 26


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="ranks without a counterpart in the first run wait for start_timeout and are told nothing")
def test_all_ranks_of_a_second_run_are_told_of_the_first(launch):
    """It has more ranks."""
    first = launch(2, 8, pauses=[[0, 4], [1, 4]])
    for rank in range(2):
        first.await_pause(rank, 4)
    refused = launch(3, 8, worker={"start_timeout": 3.0}).end()
    for rank in range(2):
        first.go_on(rank, 4)
    assert all(result["finished"] for result in first.end())
    for result in refused:
        assert "of a run in the same directory" in result["failure"]


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="the part that a rank of an earlier launch left is taken for that of the new rank")
def test_the_part_of_an_earlier_launch_is_not_measured(launch):
    """A rank of it lives on, and holds a step that the new ranks come to."""
    earlier = launch(2, 8, every=4, alone=[3, 100], signals=[[0, 4, signal.SIGKILL]], pauses=[[1, 4]])
    earlier.await_pause(1, 4)
    assert earlier.processes[0].wait() == -signal.SIGKILL
    eventually(lambda: not earlier.others())
    refused = launch(2, 4, every=4, finish=1.0).end()
    assert not earlier.steps()
    for result in refused:
        assert f"process {earlier.processes[1].pid} is rank 1 of a run in the same directory" in result["failure"]
