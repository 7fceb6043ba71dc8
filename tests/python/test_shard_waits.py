"""Faults of ranks of a sharded model that take long to notice."""

import os
import signal

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
