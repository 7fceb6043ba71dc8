"""Run directories made from the runs in tests/data/verdicts."""

import json
import os
import pathlib
import subprocess

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "verdicts"
REPORTS_OF_A_RUN = 40


def write_run(ptqwatch, run_dir, reports=REPORTS_OF_A_RUN, change=lambda entry: entry):
    """The first run whose learning rate decays: its reports as a monitor would have written them, with verdicts."""
    os.makedirs(run_dir, exist_ok=True)
    lines = []
    for number, line in enumerate((DATA / "decay.jsonl").read_text(encoding="utf-8").splitlines()[:reports]):
        entry = {"schema_version": 1, "attempt": 1, "snapshot_time_unix_seconds": 1.7e9 + 60 * number, **json.loads(line)}
        for quantizer in entry["quantization"]:
            quantizer["error_ratio"] = quantizer["delta_nats"] / entry["probe_loss_nats"]
            quantizer["error_ratio_stderr"] = abs(quantizer["error_ratio"]) / 20
            quantizer["layers"] = [{"name": f"blocks.{i}.weight", "output_error_ratio": 0.01 * (i + 1)} for i in range(4)]
        lines.append(json.dumps(change(entry)))
    plain = os.path.join(run_dir, "plain.jsonl")
    pathlib.Path(plain).write_text("\n".join(lines) + "\n", encoding="utf-8")
    judged = subprocess.run([ptqwatch, "replay", plain, "--json"], capture_output=True, timeout=60, check=True).stdout
    os.remove(plain)
    pathlib.Path(run_dir, "journal.jsonl").write_bytes(judged)
    return run_dir
