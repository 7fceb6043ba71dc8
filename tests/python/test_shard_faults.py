"""Ranks of a sharded model that stop, end, or lack something: training goes on, and what can be measured is."""

import os
import signal

import pytest

import ptqwatch
from conftest import eventually
from shard_launch import Launch, state_of

STEPS = 70


@pytest.fixture(scope="module")
def digest(forks, tmp_path_factory):
    """Of the weights at the last step, as one process has them."""
    folder = tmp_path_factory.mktemp("plain")
    return Launch(forks, folder / "launch", folder / "run", 1, steps=STEPS).end()[0]["report"]["snapshot_digest"]


def history(run_dir):
    """What the reports say, apart from curvature, whose numbers depend on when it is measured, and averages, which begin anew with a process."""
    kept = ("step", "snapshot_digest", "probe_loss_nats", "quantization", "verdict")
    reports = [{key: report[key] for key in kept} for report in ptqwatch.read_run(run_dir)]
    for entry in (entry for report in reports for entry in report["quantization"]):
        entry.pop("top_eigenvector_alignment", None)
    return reports


def test_a_rank_that_stops_is_waited_for(launch, digest):
    """Rank 0 goes on, past many steps that are due, and keeps its part of the first. Rank 1 then copies steps that rank 0 has passed."""
    ranks = launch(2, STEPS, every=4, alone=[3, 64], signals=[[1, 4, signal.SIGSTOP]], pauses=[[1, 4], [1, 63], [0, 64]])
    ranks.await_pause(0, 64)
    assert state_of(ranks.processes[1].pid) == "T"
    assert not ranks.steps()
    os.kill(ranks.processes[1].pid, signal.SIGCONT)
    ranks.await_pause(1, 4)
    eventually(lambda: ranks.steps() == [4], 60)
    ranks.go_on(1, 4)
    ranks.await_pause(1, 63)
    eventually(lambda: any("is incomplete: rank 0 did not copy its part" in event for event in ranks.events()), 60)
    ranks.go_on(1, 63)
    ranks.go_on(0, 64)
    first, second = ranks.end()
    assert first["finished"] and second["finished"]
    assert ranks.steps()[-1] == STEPS and first["report"]["snapshot_digest"] == digest


@pytest.mark.parametrize("killed", [0, 2])
def test_a_rank_that_is_killed_takes_nobody_with_it(launch, killed):
    ranks = launch(3, 20, alone=[6, 100], signals=[[killed, 6, signal.SIGKILL]], pauses=[[killed, 2]], finish=0.5)
    ranks.await_pause(killed, 2)
    eventually(lambda: 2 in ranks.steps(), 60)
    assert len(ranks.others()) == 1
    ranks.go_on(killed, 2)
    ended = [result for result in ranks.end(killed=[killed]) if result]
    for result in ended:
        assert not result["finished"] and result["finish_seconds"] < 0.5 + 2 + 1
        assert result["stop_seconds"] < 2 + 1
    assert len(ended) == 2
    eventually(lambda: not ranks.others(), 20)
    assert max(ranks.steps()) < 20
    left = {path.name for path in (ranks.run_dir / "shards").iterdir()}
    assert left == {f"rank-{killed:04d}.json"}
    again = launch(3, 20)
    assert all(result["finished"] for result in again.end())
    assert again.steps()[-1] == 20
    assert not (again.run_dir / "shards").exists()


def test_training_does_not_wait_for_a_stopped_measurement(launch, digest):
    ranks = launch(2, STEPS, pauses=[[0, 2], [0, 24], [1, 24]], early=[0.5, 24])
    ranks.await_pause(0, 2)
    eventually(lambda: 2 in ranks.steps(), 60)
    (worker,) = ranks.others()
    os.kill(worker, signal.SIGSTOP)
    eventually(lambda: state_of(worker) == "T")
    ranks.go_on(0, 2)
    ranks.await_pause(0, 24)
    ranks.await_pause(1, 24)
    assert state_of(worker) == "T" and max(ranks.steps()) < 24
    os.kill(worker, signal.SIGCONT)
    for rank in range(2):
        ranks.go_on(rank, 24)
    results = ranks.end()
    for result in results:
        assert result["finished"] and result["slowest"] < 2 and not result["early"] and result["early_seconds"] < 0.5 + 2 + 1, results
    assert ranks.steps()[-1] == STEPS and results[0]["report"]["snapshot_digest"] == digest
    assert not ranks.others()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_no_rank_waits_for_the_server(launch, digest, number, bin_dir, tmp_path):
    address = tmp_path / "targets.json"  # is there while the server runs
    ranks = launch(2, STEPS, pauses=[[0, 2]], serve={"program": str(bin_dir / "ptqwatch"), "http": "127.0.0.1:0", "grpc": "", "linger": 0,
                                                     "targets_file": str(address)})
    ranks.await_pause(0, 2)
    eventually(address.exists, 60)
    server = ranks.server()
    os.kill(server, number)
    ranks.go_on(0, 2)
    results = ranks.end()
    assert all(result["finished"] and result["slowest"] < 2 and result["stop_seconds"] < 2 + 1 for result in results), results
    assert ranks.steps()[-1] == STEPS and results[0]["report"]["snapshot_digest"] == digest
    if number == signal.SIGSTOP:
        assert ranks.server() == server and state_of(server) == "T"
        os.kill(server, signal.SIGCONT)
    eventually(lambda: not ranks.server() and not ranks.others(), 60)


def test_ranks_finish_together_after_one_that_did_not(launch):
    """The measuring process has ended when finish() is called first, and the next one when it is called again."""
    ranks = launch(2, STEPS, pauses=[[0, 2]], early=[0.5, 24], worker={"first_pause": 2.0}, finish=60.0)
    ranks.await_pause(0, 2)
    eventually(lambda: 2 in ranks.steps(), 60)
    (worker,) = ranks.others()
    os.kill(worker, signal.SIGKILL)
    ranks.go_on(0, 2)
    for result in ranks.end():
        assert result["early"] is False and result["finished"]
    assert ranks.steps()[-1] == STEPS


def test_a_run_goes_on_with_another_number_of_ranks(launch):
    """Its reports are those of one process that is not interrupted."""
    options = {"every": 4, "early": [100.0, *range(4, 25, 4)]}
    plain = launch(1, 24, "plain", **options)
    for ranks, first, last in ((4, 1, 8), (2, 9, 16), (4, 17, 24)):
        sharded = launch(ranks, last, first=first, **options)
        for result in sharded.end():
            assert result["finished"] and not result["failure"]
    plain.end()
    assert sharded.status()["run"]["attempt"] == 3
    reports = history(sharded.run_dir)
    assert [report["step"] for report in reports] == [4, 8, 12, 16, 20, 24]
    assert reports == history(plain.run_dir)
    assert reports[-1]["verdict"]["state"] == "healthy"


@pytest.mark.parametrize("poor", [0, 1])
def test_a_rank_without_memory_is_named_on_all(launch, poor):
    """Files of 64 KB hold no snapshot, and shared memory counts as a file."""
    results = launch(3, 8, memory=[poor, 1 << 16]).end()
    for rank, result in enumerate(results):
        assert "no memory to share the weights with the monitor's process" in result["failure"], result
        assert "File too large" in result["failure"]
        assert rank == poor or f"rank {poor} does not share its part of the model" in result["failure"]
        assert result["start_seconds"] < 60


def test_a_second_run_leaves_the_first_alone(launch, digest):
    first = launch(2, STEPS, pauses=[[0, 4], [1, 4]])
    for rank in range(2):
        first.await_pause(rank, 4)
    second = launch(2, 8)
    for process, result in zip(first.processes, second.end()):
        assert f"process {process.pid} is rank" in result["failure"] and "of a run in the same directory" in result["failure"]
        assert not result["finished"] and not result["report"]
    assert not second.others()
    for rank in range(2):
        first.go_on(rank, 4)
    results = first.end()
    assert all(result["finished"] for result in results)
    assert first.steps()[-1] == STEPS and results[0]["report"]["snapshot_digest"] == digest


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


def test_the_part_of_an_earlier_launch_is_not_measured(launch):
    """A rank of it lives on, and holds a step that the new ranks come to."""
    earlier = launch(2, 8, every=4, alone=[3, 100], signals=[[0, 4, signal.SIGKILL]], pauses=[[1, 4]])
    earlier.await_pause(1, 4)
    assert earlier.processes[0].wait() == -signal.SIGKILL
    eventually(lambda: not earlier.others())
    refused = launch(2, 4, every=4, finish=1.0).end()
    assert not earlier.steps()
    for result in refused:
        assert str(earlier.processes[1].pid) in result["failure"] and "is rank 1 of a run in the same directory" in result["failure"]
