"""mode="process": the same numbers as a thread, and a training run that no end of any process reaches."""

import functools
import json
import os
import pathlib
import pickle
import signal
import sys
import threading
import time
import types

import process_model
import pytest
import tiny
import torch

import ptqwatch
from conftest import eventually, page_of
from ptqwatch import _channel, _package, _process

HERE = pathlib.Path(__file__).resolve().parent
TRAINER = HERE / "process_trainer.py"


class Trainer:
    """A run of process_trainer.py."""

    def __init__(self, forks, tmp_path, *arguments, **environment):
        self.trouble = tmp_path / "trouble"
        self.trouble.touch()
        self.errors = open(tmp_path / "errors", "w+")
        stdin, write = os.pipe()
        read, stdout = os.pipe()
        self.stdin, self.stdout = open(write, "w"), open(read)
        self.process = forks.start([TRAINER, *arguments], tmp_path, os.environ | {"PTQWATCH_TROUBLE": str(self.trouble)} | environment,
                                   [stdin, stdout, self.errors.fileno()])
        os.close(stdin)
        os.close(stdout)
        self.said = {}

    def read(self, key, value=None):
        """Reads what the trainer says until it says `key`, and `value` if one is given."""
        while key not in self.said or value not in (None, self.said[key]):
            line = self.stdout.readline()
            assert line, f"no '{key}'; {self.text()}"
            self.said.update(json.loads(line))
        return self.said[key]

    def go_on(self):
        """After a pause."""
        self.stdin.write("\n")
        self.stdin.flush()

    def text(self):
        self.errors.seek(0)
        return self.errors.read()

    def end(self):
        """Everything that it says."""
        for line in self.stdout:
            self.said.update(json.loads(line))
        assert self.process.wait() == 0, self.text()
        return self.said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        for file in (self.stdin, self.stdout, self.errors):
            file.close()


@pytest.fixture(scope="module")
def trainer(forks):
    """Starts a trainer."""
    return functools.partial(Trainer, forks)


@pytest.fixture(scope="module")
def run(trainer):
    """Runs a trainer and returns what it says, and its log as `text`."""

    def run_to_end(*arguments, **environment):
        with trainer(*arguments, **environment) as started:
            said = started.end()
            return {**said, "text": started.text()}

    return run_to_end


@pytest.fixture(scope="module")
def weights(run, tmp_path_factory):
    """The weights after 100 steps without a monitor."""
    return run(tmp_path_factory.mktemp("off"), 100, "--mode", "off")["weights"]


@pytest.fixture(autouse=True)
def leaves_nothing():
    before = set(os.listdir("/dev/shm"))
    yield
    assert {name for name in os.listdir("/dev/shm") if "ptqwatch" in name} <= before


def journal(run_dir):
    """(reports, events), also of a run that goes on."""
    file = run_dir / "journal.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    lines = [json.loads(line) for line in lines if line.endswith("\n")]
    reports = ptqwatch.read_run(run_dir, layers=True) if any("event" not in line for line in lines) else []
    return reports, [line["event"] for line in lines if "event" in line]


def is_gone(process, seconds=60):
    until = time.monotonic() + seconds
    while pathlib.Path(f"/proc/{process}").exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def timeless(report):
    """A report without what depends on time."""
    return {key: value for key, value in report.items() if key not in ("cost", "snapshot_time_unix_seconds")}


def test_reports_are_those_of_a_thread(run, tmp_path, weights):
    said, reports = {}, {}
    for mode in ("thread", "process"):
        folder = tmp_path / mode
        folder.mkdir()
        said[mode] = run(folder, 100, "--mode", mode, "--run-dir", folder / "run", "--wait-for-reports", "--optimizer")
        reports[mode], _ = journal(folder / "run")
        assert said[mode]["weights"] == weights
        assert said[mode]["finished"], said[mode]["text"]
    assert [report["step"] for report in reports["process"]] == [report["step"] for report in reports["thread"]]
    assert len(reports["process"]) >= 5
    for one, other in zip(reports["process"], reports["thread"]):
        assert timeless(one) == timeless(other)
        assert one["curvature"]["optimizer"] == "adamw" and one["curvature"]["edge_of_stability_ratio"] > 0
    assert tiny.without_layers(timeless(said["process"]["latest"])) == tiny.without_layers(timeless(reports["process"][-1]))


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_rank_measures_its_share(run, tmp_path, mode):
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
def test_a_place_among_ranks_that_cannot_be_is_named(run, tmp_path, mode):
    said = run(tmp_path, 1, "--mode", mode, "--finish", 0, RANK="2", WORLD_SIZE="2")
    assert "RANK = 2: must be from 0 to WORLD_SIZE - 1 = 1" in said["failure"]


def test_finds_functions_of_the_script_and_leaves_data_loaders_alone(run, tmp_path, weights):
    said = run(tmp_path, 100, "--main", "--no-build", "--loaders")
    assert said["failure"] == "", said["text"]
    assert said["weights"] == weights
    assert said["finished"] and said["latest"]["step"] == 100, said["text"]
    assert said["status"]["steps_total"] == 100
    assert is_gone(said["worker"])


def test_a_killed_worker_is_replaced(trainer, tmp_path, weights):
    run_dir = tmp_path / "run"
    with trainer(tmp_path, 100, "--run-dir", run_dir, "--every", 10, "--pause", 10) as started:
        first = started.read("worker")
        started.read("at")
        os.kill(first, signal.SIGKILL)
        eventually(lambda: any(event["kind"] == "worker_failed" for event in journal(run_dir)[1]))
        eventually(lambda: journal(run_dir)[0])
        started.go_on()
        said = started.end()
        text = started.text()
    assert said["weights"] == weights
    assert said["finished"], text
    assert said["status"]["process"]["restarts"] >= 1
    assert "the process that measures ended (signal 9)" in text
    reports, _ = journal(run_dir)
    assert reports[-1]["step"] == 100
    assert [report["sequence"] for report in reports] == sorted({report["sequence"] for report in reports})
    steps = [report["step"] for report in reports if report["trigger"] == "interval"]
    assert steps[0] == 10 and steps == sorted(set(steps))
    assert is_gone(first)
    assert is_gone(said["status"]["process"]["process"])


def test_whatever_losses_do_each_snapshot_is_reported(trainer, tmp_path, weights):
    run_dir = tmp_path / "run"
    with trainer(tmp_path, 100, "--run-dir", run_dir, "--losses", "troubled_losses", "--wait-for-reports", "--trouble",
                 "raise@10,sys.exit@30,memory@50,os._exit@70,loop@90", "--worker", '{"longest_silence": 10, "first_pause": 0.05}') as started:
        for end in ("exit status 9", "exit status 75"):  # of the worker; the next one measures the snapshot again
            eventually(lambda: f"the process that measures ended ({end})" in started.text())
            started.trouble.write_text("")
        said = started.end()
        text = started.text()
    assert said["weights"] == weights
    assert "the losses function does not return; this process ends" in text
    assert said["finished"] and said["status"]["process"]["lost"] == 0 and said["status"]["process"]["restarts"] == 2, text
    reports = {report["step"]: report for report in journal(run_dir)[0]}
    for step, expected in {20: "ValueError: no losses today", 40: "SystemExit: 3", 60: "allocate"}.items():
        assert expected in json.dumps(reports[step])
    for step in (80, 100):
        assert reports[step]["quantization"][0]["status"] == "ok"


def test_a_worker_ends_with_its_trainer(trainer, tmp_path):
    with trainer(tmp_path, 100, "--pause", "30", "--losses", "troubled_losses", "--trouble", "loop@10") as started:
        worker = started.read("worker")
        started.read("at")
        eventually((tmp_path / "trouble.met").exists)
        os.kill(started.process.pid, signal.SIGKILL)
        assert started.process.wait() == -signal.SIGKILL
        assert is_gone(worker)


def test_a_worker_steps_back_and_leaves_ctrl_c_to_its_trainer(trainer, tmp_path):
    with trainer(tmp_path, 100, "--pause", "5") as started:
        worker = started.read("worker")
        started.read("at")
        assert os.getsid(worker) == worker
        assert os.sched_getscheduler(worker) == os.SCHED_BATCH
        assert os.getpriority(os.PRIO_PROCESS, worker) == 19
        assert pathlib.Path(f"/proc/{worker}/oom_score_adj").read_text().strip() == "1000"
        assert b"OMP_NUM_THREADS=1" in pathlib.Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
        os.kill(worker, signal.SIGINT)
        os.killpg(started.process.pid, signal.SIGINT)  # as a terminal does
        assert started.process.wait() == -signal.SIGINT
        assert "KeyboardInterrupt" in started.text()
        assert "the process that measures ended" not in started.text()
        assert is_gone(worker)


def test_a_worker_ends_if_its_trainer_becomes_another_program(start_script, tmp_path):
    started = start_script("""
        import os, sys, process_model, ptqwatch
        monitor = ptqwatch.watch(process_model.Net(), build="process_model:make_net", losses="process_model:token_losses",
                                 probe=process_model.batches(1, 1), quantizers="rtn3", on_failure="error")
        print(monitor.status()["process"]["process"], flush=True)
        os.execv("/bin/sleep", ["sleep", "60"])
    """)
    out = tmp_path / "script0.py.out"
    eventually(lambda: out.read_text().endswith("\n"))
    state = pathlib.Path(f"/proc/{int(out.read_text())}/stat")
    eventually(lambda: state.read_text().split()[2] == "Z")  # nobody waits for it
    started.kill()


def test_messages_of_any_size_arrive_whole():
    trainer, worker = _channel.pair()
    large = {"alarm": os.urandom(1 << 20).hex()}
    for message in ({"ready": 1}, large, {"answer": 2}):
        assert _channel.send(worker, message)
    assert _channel.receive(trainer) == [{"ready": 1}, large, {"answer": 2}]
    assert _channel.receive(trainer) == [] and _channel.wait(trainer, 0)
    while _channel.send(worker, {"report": os.urandom(1 << 10).hex()}):
        pass
    assert not _channel.send(worker, large)
    worker.close()
    assert not _channel.wait(trainer, 0)
    trainer.close()


def test_the_newest_report_is_read_once_and_never_in_part():
    with open(os.memfd_create("test"), "rb") as file:
        newest = _channel.Newest(file.fileno())
        assert newest.read(0) is None
        for version in (1, 2):
            assert newest.write(version, "x" * (3 - version))
        assert newest.read(0) == (2, "x") and newest.read(1) == (2, "x") and newest.read(2) is None
        os.pwrite(file.fileno(), bytes(8), 0)  # being written
        assert newest.read(1) is None


def test_memory_is_unpinned_only_if_it_was_pinned(monkeypatch):
    for error in (0, 1):
        calls = []
        runtime = types.SimpleNamespace(cudaHostRegister=lambda *_: error, cudaHostUnregister=lambda _: calls.append("unregister"))
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
        monkeypatch.setattr(_process.torch, "ones", lambda *_, **__: calls.append("kernel"))
        monitor = _process.ProcessMonitor.__new__(_process.ProcessMonitor)
        monitor._native, monitor._pinned = types.SimpleNamespace(address=0, bytes=4096), False
        monitor._pin()
        monitor._unpin()
        monitor._unpin()
        assert calls == [["unregister"], ["kernel"]][error]


def watch(**arguments):
    arguments = {"model": process_model.Net(), "build": "process_model:make_net", "losses": "process_model:token_losses",
                 "probe": process_model.batches(1, 1), "quantizers": "rtn3", **arguments}
    return ptqwatch.watch(**arguments)


@pytest.mark.parametrize("arguments, message", [
    ({"losses": lambda model, batch: 0}, "losses = <function <lambda>"),
    ({"max_overhead": 7}, "max_overhead = 7"),
    ({"every": 0}, "every = 0"),
])
def test_mistakes_are_named(arguments, message):
    with pytest.raises((ValueError, RuntimeError)) as raised:
        watch(on_failure="error", **arguments)
    assert message in str(raised.value)


def test_a_mistake_leaves_training_alone_by_default():
    monitor = watch(losses="no_such_module:losses")
    assert "losses = 'no_such_module:losses': ModuleNotFoundError: No module named 'no_such_module'" in monitor.failure
    assert monitor.failure in monitor.describe()
    monitor.step(1, 0.1)
    assert not monitor.finish(5)
    assert monitor.latest() is None
    assert monitor.stop()


def test_a_script_that_trains_when_it_is_imported_is_told_so(start_script, tmp_path):
    started = start_script("""
        import ptqwatch, process_model
        def make(): return process_model.Net()
        ptqwatch.watch(make(), build=make, losses="process_model:token_losses", probe=process_model.batches(1, 1), on_failure="error")
    """)
    assert started.wait() == 1
    lines = (tmp_path / "script0.py.err").read_text().splitlines()
    error = [line for line in lines if line.startswith("RuntimeError")][-1]  # PyTorch 2.15 may write after it
    assert "ImportError" in error and "script0.py" in error and error.count("if __name__ == '__main__'") == 1


def test_what_python_ignores_on_its_path_is_ignored_and_compiled_parts_are_sent(monkeypatch):
    model = process_model.Net()
    model.hidden = torch.compile(model.hidden, backend="eager")
    monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path("not a str")])
    monitor = watch(model=model, build=None, every=1)
    assert monitor.failure == ""
    monitor.step(1, 0.1)
    assert monitor.finish(float("inf"))
    assert monitor.latest()["quantization"][0]["status"] == "ok"
    assert monitor.stop(20)


def test_batches_are_sent_without_the_data_that_they_are_part_of(monkeypatch):
    data = torch.zeros(1 << 21, dtype=torch.int64)
    sent = []

    def start(monitor, content, threads):
        sent.append(len(content))
        raise RuntimeError("enough")

    monkeypatch.setattr(_process.ProcessMonitor, "_start_worker", start)
    monitor = watch(probe=[(data[:96].view(8, 12), data[96:192].view(8, 12))])
    assert sent[0] < 1 << 16
    status = monitor.status()
    assert (monitor.failure, status["health"], status["health_reason"]) == ("enough", "inert", "enough")


def test_ctrl_c_while_the_worker_starts_ends_it(monkeypatch):
    workers = []

    def interrupted(monitor, until):
        eventually(lambda: monitor._native.worker()["process"])
        workers.append(monitor._native.worker()["process"])
        raise KeyboardInterrupt

    monkeypatch.setattr(_process.ProcessMonitor, "_await_ready", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:  # which keeps the monitor
        watch()
    assert is_gone(workers[0]), raised


def test_a_working_directory_that_is_gone_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert "the working directory is gone (No such file or directory)" in watch(run_dir="run").failure


def test_what_the_worker_cannot_import_is_named(monkeypatch):
    module = types.ModuleType("of_the_trainer_only")
    exec("def losses(model, batch): pass\ndef build(): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    parts, needs_main = _package.pack(None, module.build, module.losses, None)
    assert not needs_main
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(ImportError) as raised:
        _package.unpack(parts)
    assert "losses = <function losses at " in str(raised.value)
    assert "No module named 'of_the_trainer_only'" in str(raised.value)


def test_functions_of_a_script_are_found_from_a_process_that_multiprocessing_has_spawned(monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.touch()
    main = types.ModuleType("__mp_main__")
    exec("def losses(model, batch): pass\ndef build(): pass", main.__dict__)
    main.__file__ = str(script)
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, main)
    parts, needs_main = _package.pack(None, main.build, main.losses, None)
    assert needs_main
    assert _package.surroundings(needs_main)["init_main_from_path"] == str(script)
    main.__file__ = None
    with pytest.raises(ValueError, match="which is no file that the monitor's process could import"):
        _package.pack(None, main.build, main.losses, None)


def test_functions_by_value_leave_out_the_weights_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ValueError, match="cloudpickle'] = True.*pip install cloudpickle"):
        _package.pack(None, "tiny:build", "tiny:losses", None, cloudpickle=True)
    monkeypatch.setitem(sys.modules, "cloudpickle", types.SimpleNamespace(CloudPickler=pickle.Pickler))
    model = process_model.Net(vocabulary=1 << 14)
    parts, needs_main = _package.pack(model, None, "tiny:losses", None, cloudpickle=True)
    assert len(parts["model"].data) < 1 << 14 and not needs_main
    build, *_ = _package.unpack(parts)
    assert build().embed.weight.shape == model.embed.weight.shape


def test_functions_of_a_notebook_are_refused(monkeypatch):
    notebook = types.ModuleType("__main__")
    exec("def losses(model, batch): pass\nclass Net: pass", notebook.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    for arguments, words in [((None, "tiny:build", notebook.losses), "losses = <function losses at "),
                             ((None, "tiny:build", "__main__:losses"), "losses = '__main__:losses'"),
                             ((None, notebook.Net, "tiny:losses"), "build = <class '__main__.Net'>")]:
        with pytest.raises(ValueError) as raised:
            _package.pack(*arguments, None)
        assert words in str(raised.value)
        assert "worker={'cloudpickle': True}, or use mode='thread'" in str(raised.value)


def test_a_script_that_ends_when_it_is_imported_is_named(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.exit(2)\n")
    with pytest.raises(ImportError) as raised:
        _package.enter({"init_main_from_path": str(script)})
    assert f"could not import the training script '{script}': SystemExit: 2. Put what trains under `if __name__" in str(raised.value)


def test_the_server_outlives_the_worker(tmp_path, bin_dir, monkeypatch):
    if not (bin_dir / "ptqwatch").exists():
        pytest.skip("the program ptqwatch was not built")
    monkeypatch.setenv("PTQWATCH_PROGRAM", str(bin_dir / "ptqwatch"))
    monitor = watch(run_dir=tmp_path / "run", every=10, serve={"http": "127.0.0.1:0", "grpc": "", "linger": 0},
                    worker={"first_pause": 0.05})
    eventually(lambda: monitor.served["state"] == "serving")
    address = monitor.served["metrics"]
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
    eventually(lambda: "ptqwatch_snapshot_step 2\n" in page_of(address))
    assert monitor.stop(20)


def test_on_alert_is_called_by_the_thread_that_steps_and_cooldowns_train_in_the_worker():
    model, alarms = process_model.Net(), []

    def note(report):
        alarms.append((threading.get_ident(), report["verdict"]["state"], report["step"]))
        raise ValueError("an exception of on_alert is logged")

    monitor = watch(model=model, every=1, on_alert=note, curvature={"enabled": False}, duty_cycle=1.0, adapt_plan=False,
                    train_step="process_model:train_step", cooldown={"decay_steps": 8, "every_snapshots": 1})
    assert "cooldown" in monitor.describe()
    for step in range(1, 41):
        with torch.no_grad():
            model.hidden.weight.add_(1e-3 * torch.randn_like(model.hidden.weight))
            if step == 30:  # outliers, which a grid of 8 levels cannot take
                model.hidden.weight[:, 0] *= 100
                model.out.weight[:, 0] *= 100
        monitor.step(step, 1e-2)
        eventually(lambda: (monitor.latest() or {"step": 0})["step"] == step)
        if alarms:
            break
    assert monitor.finish()
    assert len(alarms) == 1 and alarms[0][0] == threading.get_ident() and alarms[0][2] >= 30, alarms
    eventually(lambda: monitor.status()["cooldown"]["state"] == "done")
    assert monitor.stop()


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
    with pytest.raises((TypeError, ValueError)) as raised:
        _process._settings(worker)
    assert message.replace("\\", "") in str(raised.value)
