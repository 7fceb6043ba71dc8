"""examples/python/ranks.py on four processes, as torchrun starts it."""

import json
import os
import pathlib
import subprocess
import sys

import ptqwatch
from conftest import ROOT

RANKS = 4


def test_four_processes_of_torchrun_are_one_run(tmp_path):
    run_dir = tmp_path / "ranks"
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
         ROOT / "examples/python/ranks.py", "--run-dir", run_dir, "--steps", "40", "--every", "20"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rtn3: E = " in done.stdout
    assert sorted(path.name for path in run_dir.iterdir() if path.is_dir()) == [f"rank-{rank:04d}" for rank in range(RANKS)]
    for rank in range(RANKS):
        lines = [json.loads(line) for line in pathlib.Path(run_dir, f"rank-{rank:04d}/journal.jsonl").read_text().splitlines()]
        own = [line for line in lines if "event" not in line]
        assert {(report["rank"], report["ranks"]) for report in own} == {(rank, RANKS)}
        statuses = {entry["status"] for entry in own[-1]["quantization"]}
        assert "other_rank" in statuses  # each has only its share
    merged = ptqwatch.read_run(run_dir)
    steps = [report["step"] for report in merged]
    assert steps == sorted(set(steps)) and steps[-1] == 40
    assert all(entry["status"] == "ok" for entry in merged[-1]["quantization"])
    assert not any(report.get("rank") for report in merged)
