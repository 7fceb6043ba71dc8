"""Starts an example trainer as a user would and reads what it prints."""

import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import time
import urllib.error
import urllib.request

from beside import eventually
from setup_packages import CACHE


def prometheus_program(name):
    """The program of Prometheus that ./setup keeps, or else the one on the PATH."""
    kept = os.path.join(CACHE, "servers", name)
    return kept if os.path.exists(kept) else name


def with_rows(record, names=None):
    """The record of a journal's line, with lists by layer as rows instead of columns (docs/run_directory.md)."""
    if isinstance(record, list):
        return [with_rows(element, names) for element in record]
    if not isinstance(record, dict):
        return record
    names = record.get("layer_names", names)
    rows = {}
    for key, value in record.items():
        if key.endswith("_columns"):
            indices = range(value["name"]) if isinstance(value["name"], int) else value["name"]
            columns = {name: value.get(column, column) if isinstance(column, str) else column for name, column in value.items() if name != "name"}
            cells = {name: column if isinstance(column, list) else [column] * len(indices) for name, column in columns.items()}
            rows[key.removesuffix("_columns")] = [
                {"name": names[index], **{name: column[row] for name, column in cells.items() if column[row] is not None}}
                for row, index in enumerate(indices)]
        elif key != "layer_names":
            rows[key] = with_rows(value, names)
    return rows


def journal(run_dir):
    """The reports and the events of a run directory's journal, and how many of its lines cannot be read."""
    reports, events, bad = [], [], 0
    with open(os.path.join(run_dir, "journal.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                bad += 1
                continue
            if "event" in entry:
                events.append(entry["event"])
            else:
                reports.append(with_rows(entry))
    return reports, events, bad


def weights(output):
    """The hash of the trained weights, printed by every trainer."""
    return re.search(r"^weights (?:sha256 )?(\w+)$", output, re.MULTILINE)[1]


class Trainer:
    """One run of a trainer binary. `flags` are appended to settings that make it short."""

    SHORT = ["--width", "16", "--layers", "1", "--probe-sequences", "64", "--calibration-sequences", "32",
             "--warmup", "10", "--every", "40", "--group-size", "8"]

    def __init__(self, binary, *flags, short=True, env=None, address_space=None, cwd=None, before=None):
        """`address_space`: bytes, as `ulimit -v`. `before` is called in the new process."""
        command = [binary, *(self.SHORT if short else []), *flags]
        def limit():
            if address_space is not None:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
            if before is not None:
                before()

        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=cwd,
                                        env={**os.environ, **(env or {})}, preexec_fn=limit)
        self.lines = []
        self.rest = b""

    def wait_for(self, pattern, timeout=120):
        """The match object of the first line of standard output that has `pattern`."""
        deadline = time.monotonic() + timeout
        seen = 0
        while True:
            for line in self.lines[seen:]:
                seen += 1
                if match := re.search(pattern, line):
                    return match
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"no line with {pattern!r} within {timeout} s:\n" + "\n".join(self.lines))
            chunk = self.process.stdout.read(65536)
            if not chunk:
                raise AssertionError(f"ended without a line with {pattern!r}:\n" + "\n".join(self.lines)
                                     + self.process.stderr.read().decode())
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            self.lines += [line.decode() for line in whole]

    def finish(self, timeout=240):
        """(exit code, standard output, standard error)"""
        out, err = self.process.communicate(timeout=timeout)
        self.lines += (self.rest + out).decode().splitlines()
        return self.process.returncode, "\n".join(self.lines), err.decode()

    def metrics(self, *texts):
        """The page, once it has these texts: the server reads the journal after the trainer has written it, and knows no run (503) before."""
        url = self.wait_for(r"^metrics (http://\S+)$")[1]

        def page():
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
                page = answer.read().decode()
                return all(text in page for text in texts) and page

        return eventually(page, f"{texts} on {url}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def train(binary, *flags):
    """A whole run of a trainer, as a class of tests needs it beforehand."""
    with Trainer(binary, *flags) as trainer:
        code, _, err = trainer.finish()
    if code != 0:
        raise AssertionError(err)


class Server(Trainer):
    """`ptqwatch serve`, read like a trainer. `address` is that of gRPC, `url` that of the page; each if it is served."""

    def __init__(self, ptqwatch, *arguments, http="127.0.0.1:0", grpc="127.0.0.1:0"):
        super().__init__(ptqwatch, "serve", *arguments, "--http", http, "--grpc", grpc, short=False)
        if grpc != "off":
            self.address = self.wait_for(r"^grpc (\S+)$")[1]
        if http != "off":
            self.url = self.wait_for(r"^metrics (\S+/)metrics$")[1]

    def get(self, path):
        """(status, text)"""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def until(self, path, condition):
        """Waits until condition(status, text) of this answer is true."""
        eventually(lambda: condition(*self.get(path)), lambda: self.get(path))

    def ready(self):
        """Waits until the journals are read."""
        self.until("readyz", lambda status, _: status == 200)
        return self

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.finish(timeout=20)

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=20)
