"""A model that is sharded over ranks, watched live: its reports are those of one process with the same weights."""

import functools
import json
import os
import pathlib
import signal
import time

import pytest

import ptqwatch

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def train(forks, tmp_path_factory):
    """Trains on so many ranks and returns what the rank that measures prints, and the run directory."""

    @functools.cache
    def run(layout, ranks, fault="", steps=4, every=2, during=None):
        folder = tmp_path_factory.mktemp(layout)
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        processes, files = [], []
        for rank in range(ranks):
            files.append((folder / f"{rank}.out", folder / f"{rank}.err"))
            with open(os.devnull) as nothing, files[-1][0].open("w") as out, files[-1][1].open("w") as err:
                arguments = [rank, ranks, folder / "store", folder / "run", layout, steps, every, fault]
                processes.append(forks.start([HERE / "sharded_trainer.py", *map(str, arguments)], folder, environment,
                                             [nothing.fileno(), out.fileno(), err.fileno()]))
        if during:
            during(processes, folder / "run")
        for process, (_, err) in zip(processes, files):
            assert process.wait() == 0, err.read_text()
        return json.loads(files[0][0].read_text()), folder / "run"

    return run


def without_edge(report):
    return {**report, "curvature": {key: value for key, value in report["curvature"].items() if key != "optimizer" and not key.startswith("edge_of_stability")}}


@pytest.mark.parametrize(("layout", "ranks"), [("fsdp", 2), ("fsdp", 4), ("hsdp", 4), ("mixed", 2), ("mixed_kept", 2), ("fsdp1", 2), ("fsdp1_mixed", 2), ("compiled", 2),
                                               ("offload", 2)])
def test_reports_are_those_of_one_process(train, layout, ranks):
    """Uneven and empty shards, a tied head, a frozen bias; "mixed" is unsharded in bfloat16 at each snapshot, "fsdp1_mixed" has rounded its
    buffers, too, and "compiled" has an activation checkpoint
    inside."""
    plain, _ = train("plain", 1)
    assert plain["step"] == 4 and plain["curvature"]["edge_of_stability_ratio"]
    assert train(layout, ranks)[0] == plain


def test_rounded_weights_are_those_of_a_rounded_model(train):
    """remote_monitor_test compares whole reports."""
    report, plain, exact = train("fsdp", 2, "bfloat16")[0], train("plain", 1, "rounded")[0], train("plain", 1)[0]
    assert report["snapshot_dtype"] == "bfloat16"
    for key in ("step", "snapshot_digest", "probe_loss_nats"):
        assert report[key] == plain[key], key
    assert report["snapshot_digest"] != exact["snapshot_digest"]
    assert report["curvature"]["edge_of_stability_ratio"] == pytest.approx(exact["curvature"]["edge_of_stability_ratio"], rel=0.05)


@pytest.mark.parametrize(("layout", "ranks"), [("tp", 2), ("fsdp_tp", 4)])
def test_tensor_parallel_reports_are_those_of_one_process(train, layout, ranks):
    assert train(layout, ranks)[0] == train("plain", 1, "even")[0]


@pytest.mark.parametrize(("layout", "ranks"), [("experts", 3), ("experts_fsdp", 4)])
def test_expert_parallel_reports_are_those_of_one_process(train, layout, ranks):
    """Ranks with two experts and one."""
    plain, _ = train("plain", 1, "experts")
    assert train(layout, ranks)[0] == plain


def test_zero3_reports_are_those_of_one_process(train):
    """The end of the last partition is NaN. The optimizer has flat parameters, so there is no edge of stability."""
    report, plain = train("zero3", 4)[0], train("plain", 1, "no_optimizer")[0]
    assert "flat parameters" in report["curvature"]["edge_of_stability_detail"]
    report, plain = without_edge(report), without_edge(plain)
    assert report["curvature"] == plain["curvature"]
    assert report == plain


def test_hosts_with_whole_models_share_the_work(train):
    _, run_dir = train("hsdp", 4, "two_hosts")
    assert sorted(path.name for path in run_dir.iterdir()) == ["rank-0000", "rank-0001"]
    merged, plain = (ptqwatch.read_run(folder)[-1] for folder in (run_dir, train("plain", 1)[1]))
    for key in ("step", "snapshot_digest", "probe_loss_nats", "quantization", "curvature"):
        assert merged[key] == plain[key], key


@pytest.mark.parametrize("layout", ["fsdp", "fsdp1"])
def test_a_host_with_a_part_of_the_model_passes_it_on_to_the_first(train, layout):
    report, run_dir = train(layout, 4, "two_hosts")
    assert report == train("plain", 1)[0]
    assert sorted(path.name for path in run_dir.iterdir()) == ["rank-0000"]
    assert [entry["step"] for entry in ptqwatch.read_run(run_dir)] == [entry["step"] for entry in ptqwatch.read_run(train("plain", 1)[1])]


@pytest.mark.parametrize(("layout", "fault", "said"), [("fsdp1", "permuted", "parameter 'mix' .* not in order"), ("fsdp", "clock", "every_seconds = 1"),
                                                       ("fsdp", "odd", "buffer 'odd' is on the meta device")])
def test_what_cannot_be_measured_is_refused_on_all_ranks(train, layout, fault, said):
    with pytest.raises(AssertionError, match=said):
        train(layout, 2, fault)


def test_the_callbacks_watch_on_every_rank(train):
    """Without communicating, as all tests of this file."""
    pytest.importorskip("transformers")
    assert train("fsdp", 2, "callbacks")[0] == train("plain", 1)[0]


def test_training_ends_with_the_same_bits_with_and_without(train):
    watched, run_dir = train("fsdp", 2, "train_watched", steps=100, every=5)
    assert watched == train("fsdp", 2, "train", steps=100, every=5)[0]
    assert len(ptqwatch.read_run(run_dir)) >= 2


def test_ranks_need_not_go_in_step(train):
    """Without a barrier, a snapshot may be incomplete, which is said, and the last one is not."""
    assert train("fsdp", 4, "apart")[0] == train("plain", 1)[0]


def test_a_rank_that_skips_a_step_costs_that_snapshot(train):
    report, run_dir = train("fsdp", 2, "skip", steps=6, every=2)
    assert report["step"] == 6
    assert [entry["step"] for entry in ptqwatch.read_run(run_dir)][0] > 2
    events = [json.loads(line)["event"] for line in (run_dir / "journal.jsonl").read_text().splitlines() if "event" in line]
    assert any("step 2 is incomplete: rank 1 did not copy its part" in event["message"] for event in events), events
    status = json.loads((run_dir / "status.json").read_text())["status"]
    assert status["snapshots"]["incomplete"] >= 1, status["snapshots"]


def test_no_snapshot_mixes_steps(train):
    """The weights change at every step, and ranks are apart."""
    digests = []
    for layout, ranks in (("plain", 1), ("fsdp", 2)):
        _, run_dir = train(layout, ranks, "every_step", steps=40, every=1)
        digests.append({report["step"]: report["snapshot_digest"] for report in ptqwatch.read_run(run_dir)})
    plain, sharded = digests
    both = plain.keys() & sharded.keys()
    assert len(both) >= 10, (plain, sharded)
    assert all(plain[step] == sharded[step] for step in both)


def worker_of(run_dir):
    """The process that holds the lock of the run."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for status in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"ptqwatch.worker" in status.read_bytes() and os.readlink(status.parent / "cwd") == str(run_dir.parent):
                    return int(status.parent.name)
            except OSError:
                continue
        time.sleep(0.05)
    raise AssertionError("no worker")


def test_a_worker_that_is_killed_is_replaced(train):
    def kill(_, run_dir):
        while not (run_dir / "journal.jsonl").exists() or '"step":2,' not in (run_dir / "journal.jsonl").read_text():
            time.sleep(0.02)
        os.kill(worker_of(run_dir), signal.SIGKILL)

    report, run_dir = train("fsdp", 2, "slow", steps=200, every=2, during=kill)
    assert report["step"] == 200
    text = (run_dir / "journal.jsonl").read_text()
    assert '"worker_failed"' in text
    assert not (run_dir / "shards").exists()
