"""mode="process": the same numbers as a thread, and a training run that no end of any process reaches."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

import process_model
import pytest

import ptqwatch

HERE = pathlib.Path(__file__).resolve().parent
TRAINER = HERE / "process_trainer.py"


class Trainer:
    """A run of process_trainer.py."""

    def __init__(self, tmp_path, *arguments, script=TRAINER, **environment):
        self.trouble = tmp_path / "trouble"
        self.trouble.touch()
        self.errors = open(tmp_path / "errors", "w+")
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)], stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=tmp_path,
            env=os.environ | {"PTQWATCH_TROUBLE": str(self.trouble), **environment}, start_new_session=True)
        self.said = {}

    def read(self, key):
        """Reads what the trainer says until it says `key`."""
        while key not in self.said:
            line = self.process.stdout.readline()
            assert line, f"no '{key}'; {self.text()}"
            self.said.update(json.loads(line))
        return self.said[key]

    def text(self):
        self.errors.seek(0)
        return self.errors.read()

    def end(self):
        """Everything that it says."""
        for line in self.process.stdout:
            self.said.update(json.loads(line))
        assert self.process.wait() == 0, self.text()
        return self.said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def run(tmp_path, *arguments, **environment):
    with Trainer(tmp_path, *arguments, **environment) as trainer:
        said = trainer.end()
        return {**said, "text": trainer.text()}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The weights after 100 steps without a monitor."""
    return run(tmp_path_factory.mktemp("off"), 100, "--mode", "off")["weights"]


@pytest.fixture(autouse=True)
def leaves_nothing():
    before = set(os.listdir("/dev/shm"))
    yield
    assert {name for name in os.listdir("/dev/shm") if "ptqwatch" in name} <= before


def journal(run_dir):
    lines = [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]
    return [line for line in lines if "event" not in line], [line["event"] for line in lines if "event" in line]


def is_gone(process, seconds=10):
    until = time.monotonic() + seconds
    while pathlib.Path(f"/proc/{process}").exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def timeless(report):
    """A report without what depends on time."""
    return {key: value for key, value in report.items() if key not in ("cost", "snapshot_time_unix_seconds")}


def test_reports_are_those_of_a_thread(tmp_path, weights):
    said, reports = {}, {}
    for mode in ("thread", "process"):
        folder = tmp_path / mode
        folder.mkdir()
        said[mode] = run(folder, 100, "--mode", mode, "--run-dir", folder / "run", "--wait-for-reports")
        reports[mode], _ = journal(folder / "run")
        assert said[mode]["weights"] == weights
        assert said[mode]["finished"], said[mode]["text"]
    assert [report["step"] for report in reports["process"]] == [report["step"] for report in reports["thread"]]
    assert len(reports["process"]) >= 5
    for one, other in zip(reports["process"], reports["thread"]):
        assert timeless(one) == timeless(other)
    assert timeless(said["process"]["latest"]) == timeless(reports["process"][-1])


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_rank_measures_its_share(tmp_path, mode):
    said = run(tmp_path, 40, "--mode", mode, "--run-dir", tmp_path / "run", "--wait-for-reports", RANK="1", WORLD_SIZE="2")
    assert said["failure"] == "" and said["finished"], said["text"]
    assert os.listdir(tmp_path / "run") == ["rank-0001"]
    reports, _ = journal(tmp_path / "run" / "rank-0001")
    assert [report["step"] for report in reports] == [20, 40]
    for report in reports:
        assert (report["rank"], report["ranks"]) == (1, 2)
        assert report["parameter_digests"]
        parts = [*report["quantization"], report["curvature"], report["noise"]]
        assert {part["status"] for part in parts} == {"ok", "other_rank"}


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_place_among_ranks_that_cannot_be_is_named(tmp_path, mode):
    said = run(tmp_path, 1, "--mode", mode, "--finish", 0, RANK="2", WORLD_SIZE="2")
    assert "RANK = 2: must be from 0 to WORLD_SIZE - 1 = 1" in said["failure"]


@pytest.mark.parametrize("arguments", [("--main",), ("--main", "--no-build")])
def test_finds_functions_of_the_script_and_copies_the_model(tmp_path, weights, arguments):
    said = run(tmp_path, 100, *arguments)
    assert said["failure"] == "", said["text"]
    assert said["finished"], said["text"]
    assert said["weights"] == weights
    assert said["latest"]["step"] == 100


def test_data_loaders_leave_the_worker_alone(tmp_path, weights):
    said = run(tmp_path, 100, "--loaders")
    assert said["weights"] == weights
    assert said["finished"] and said["latest"]["step"] == 100, said["text"]
    assert said["status"]["steps_total"] == 100
    assert is_gone(said["worker"])


def test_a_killed_worker_is_replaced(tmp_path, weights):
    run_dir = tmp_path / "run"
    with Trainer(tmp_path, 100, "--run-dir", run_dir, "--step-seconds", 0.05, "--every", 10) as trainer:
        first = trainer.read("worker")
        time.sleep(0.5)
        os.kill(first, signal.SIGKILL)
        said = trainer.end()
        text = trainer.text()
    assert said["weights"] == weights
    assert said["finished"], text
    assert said["status"]["process"]["restarts"] >= 1
    assert "the process that measures ended (signal 9)" in text
    reports, events = journal(run_dir)
    assert any(event["kind"] == "worker_failed" for event in events), events
    assert reports[-1]["step"] == 100
    assert [report["sequence"] for report in reports] == sorted({report["sequence"] for report in reports})
    steps = [report["step"] for report in reports if report["trigger"] == "interval"]
    assert steps == sorted(set(steps))
    assert is_gone(first)
    assert is_gone(said["status"]["process"]["process"])


def test_failures_of_losses_are_in_the_report(tmp_path, weights):
    run_dir = tmp_path / "run"
    said = run(tmp_path, 100, "--run-dir", run_dir, "--losses", "troubled_losses", "--wait-for-reports",
               "--trouble", "raise@30,sys.exit@50,memory@70,none@90")
    assert said["weights"] == weights
    assert said["status"]["process"]["restarts"] == 0, said["text"]
    reports = {report["step"]: report for report in journal(run_dir)[0]}
    for step, expected in {40: "ValueError: no losses today", 60: "SystemExit: 3", 80: "allocate"}.items():
        assert expected in json.dumps(reports[step])
    assert reports[100]["quantization"][0]["status"] == "ok"


def test_a_worker_that_exits_in_losses_is_replaced(tmp_path, weights):
    said = run(tmp_path, 100, "--losses", "troubled_losses", "--trouble", "os._exit@50", "--finish", 0.5,
               "--step-seconds", 0.02)
    assert said["weights"] == weights
    assert "the process that measures ended (exit status 9)" in said["text"]
    assert not said["finished"]


def test_an_endless_loop_ends_the_worker(tmp_path, weights):
    with Trainer(tmp_path, 100, "--losses", "troubled_losses", "--trouble", "loop@50", "--step-seconds", 0.1, "--finish", 0,
                 "--worker", '{"longest_silence": 1, "first_pause": 0.05}') as trainer:
        said = trainer.end()
        text = trainer.text()
    assert said["weights"] == weights
    assert "the losses function does not return; this process ends" in text
    assert "the process that measures ended (exit status 75)" in text


def test_a_worker_ends_with_its_trainer(tmp_path):
    with Trainer(tmp_path, 100_000, "--step-seconds", 0.01, "--losses", "troubled_losses", "--trouble", "loop@20") as trainer:
        worker = trainer.read("worker")
        time.sleep(0.5)
        os.kill(trainer.process.pid, signal.SIGKILL)
        trainer.process.wait()
        assert is_gone(worker, seconds=5)


def test_a_worker_steps_back_and_leaves_ctrl_c_to_its_trainer(tmp_path):
    with Trainer(tmp_path, 100_000, "--step-seconds", 0.01) as trainer:
        worker = trainer.read("worker")
        assert os.getsid(worker) == worker
        assert os.sched_getscheduler(worker) == os.SCHED_BATCH
        assert os.getpriority(os.PRIO_PROCESS, worker) == 19
        assert pathlib.Path(f"/proc/{worker}/oom_score_adj").read_text().strip() == "1000"
        assert b"OMP_NUM_THREADS=1" in pathlib.Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
        os.kill(worker, signal.SIGINT)
        os.killpg(trainer.process.pid, signal.SIGINT)  # as a terminal does
        trainer.process.wait()
        assert "KeyboardInterrupt" in trainer.text()
        assert "the process that measures ended" not in trainer.text()
        assert is_gone(worker)


def watch(**arguments):
    arguments = {"build": "process_model:make_net", "losses": "process_model:token_losses", "quantizers": "rtn3", **arguments}
    return ptqwatch.watch(process_model.Net(), probe=process_model.batches(1, 1), **arguments)


@pytest.mark.parametrize("arguments, message", [
    ({"losses": lambda model, batch: 0}, "losses = <function <lambda>"),
    ({"build": "process_model:make_nets"}, "build = 'process_model:make_nets'"),
    ({"losses": "no_such_module:losses"}, "No module named 'no_such_module'"),
    ({"max_overhead": 7}, "max_overhead = 7"),
])
def test_mistakes_are_named(arguments, message):
    with pytest.raises((ValueError, RuntimeError)) as raised:
        watch(on_failure="error", **arguments)
    assert message in str(raised.value)


def test_a_mistake_leaves_training_alone_by_default():
    monitor = watch(losses="process_model:make_net")
    assert "TypeError" in monitor.failure
    assert "TypeError" in monitor.describe()
    monitor.step(1, 0.1)
    assert not monitor.finish(5)
    assert monitor.latest() is None
    assert monitor.stop()


def test_a_script_that_trains_when_it_is_imported_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import ptqwatch, process_model\n"
        "def make(): return process_model.Net()\n"
        "ptqwatch.watch(make(), build=make, losses='process_model:token_losses', probe=process_model.batches(1, 1), on_failure='error')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode != 0
    assert "if __name__ == '__main__'" in done.stderr.splitlines()[-1], done.stderr


def eventually(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_server_outlives_the_worker(tmp_path, bin_dir, monkeypatch):
    if not (bin_dir / "ptqwatch").exists():
        pytest.skip("the program ptqwatch was not built")
    monkeypatch.setenv("PTQWATCH_PROGRAM", str(bin_dir / "ptqwatch"))
    monitor = watch(run_dir=tmp_path / "run", every=10, serve={"http": "127.0.0.1:0", "grpc": "", "linger": 0},
                    worker={"first_pause": 0.05})
    address = monitor.served["metrics"]
    assert monitor.served["state"] == "serving", monitor.served
    monitor.step(1, 0.1)
    os.kill(monitor.status()["process"]["process"], signal.SIGKILL)

    def the_next_one_answers():
        status = monitor.status()
        return status["process"]["restarts"] == 1 and "steps_total" in status

    eventually(the_next_one_answers)
    monitor.step(2, 0.1)
    assert monitor.finish(60)
    assert monitor.served["metrics"] == address and monitor.served["restarts"] == 0
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["process_id"] == os.getpid()

    def shows_the_report():
        with urllib.request.urlopen(address) as page:
            return b"ptqwatch_snapshot_step 2\n" in page.read()

    eventually(shows_the_report)
    assert monitor.stop(20)


def test_a_disabled_monitor_starts_no_process(monkeypatch):
    monkeypatch.setenv("PTQWATCH_DISABLE", "1")
    monitor = watch()
    assert monitor.failure == "disabled by PTQWATCH_DISABLE"
    assert monitor.status()["health"] == "inert"
    monitor.step(1, 0.1)
    assert monitor.stop()


@pytest.mark.parametrize("worker, message", [
    ({"start_timout": 1}, "worker has no setting 'start_timout'"),
    ({"start_timeout": -1}, "worker['start_timeout'] = -1"),
    ({"cloudpickle": 1}, "worker['cloudpickle'] = 1"),
    ([1], r"worker = \[1\]"),
])
def test_settings_are_checked(worker, message):
    from ptqwatch._process import _settings

    with pytest.raises((TypeError, ValueError)) as raised:
        _settings(worker)
    assert message.replace("\\", "") in str(raised.value)
