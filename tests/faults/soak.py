#!/usr/bin/env python3
"""Trains for 20 minutes with a server beside the run and clients attached. Memory, threads and descriptors of both must stay flat
and no report may be lost. Then kills the server of another run 200 times, and ends and resumes a trainer 200 times.

usage: soak.py BUILD_BIN_DIR      PTQWATCH_SOAK_SECONDS: how long (1200), PTQWATCH_SOAK_KILLS: how often (200)
"""

import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from beside import server_of  # noqa: E402
from trainer import Trainer, journal  # noqa: E402

SECONDS = float(os.environ.get("PTQWATCH_SOAK_SECONDS", "1200"))
KILLS = int(os.environ.get("PTQWATCH_SOAK_KILLS", "200"))
SAMPLES = 240
# Allowed growth of memory from the second quarter to the last. A server keeps up to 32 MB of
# reports in memory per protocol.
MAY_GROW_MB = {"trainer": 4, "server": 64}


def sample(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        status = dict(line.split(":", 1) for line in file)
    return {"megabytes": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def scrape(url, ended, pages):
    while not ended.wait(1):
        with urllib.request.urlopen(url, timeout=30) as answer:
            pages.append(answer.read().decode())
        del pages[:-1]


def report_sequences(text):
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line["sequence"] for line in lines if "event" not in line]


class Soak:
    def __init__(self, bin_dir, run_dir):
        self.bin, self.run_dir, self.samples, self.pages = bin_dir, run_dir, [], []

    def run(self):
        """Returns the trainer's exit code and output, and the output of the client that reads."""
        # Waits for each snapshot, because a monitor beside other work rests and would take few.
        flags = ["--steps", "1000000000", "--every", "20", "--wait", "on", "--schedule", "constant", "--methods", "rtn", "--bits", "4",
                 "--run-dir", self.run_dir, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        with contextlib.ExitStack() as stack:
            trainer = stack.enter_context(Trainer(f"{self.bin}/char_gpt", *flags))
            page = trainer.wait_for(r"^metrics (http://\S+)$")[1]
            grpc = trainer.wait_for(r"^grpc (\S+)$")[1]
            watch = [f"{self.bin}/ptqwatch", "watch", grpc, "--json"]  # ends with the trainer
            heard = stack.enter_context(tempfile.TemporaryFile("w+"))
            listener = subprocess.Popen(watch, stdout=heard)
            deaf = subprocess.Popen(watch, stdout=subprocess.PIPE)  # no process reads the pipe
            stack.callback(deaf.stdout.close)
            stack.callback(deaf.wait)
            stack.callback(deaf.kill)
            host, port = re.search(r"//(.*):(\d+)/", page).groups()
            silent = stack.enter_context(socket.create_connection((host, int(port))))
            silent.sendall(b"GET /metrics HTTP/1.1\r\n")
            ended = threading.Event()
            scraper = threading.Thread(target=scrape, args=(page, ended, self.pages))
            scraper.start()
            self.watch_trainer(trainer)
            ended.set()
            scraper.join()
            trainer.process.send_signal(signal.SIGTERM)
            code, out, err = trainer.finish(timeout=60)
            listener.wait(timeout=60)
            heard.seek(0)
            return code, out + err, heard.read()

    def watch_trainer(self, trainer):
        server = server_of(trainer.process.pid)
        end = time.monotonic() + SECONDS
        output = threading.Thread(target=self.drain, args=(trainer,))
        while (left := end - time.monotonic()) > 0:
            if trainer.process.poll() is not None:
                raise AssertionError(f"the trainer ended with {trainer.process.returncode}")
            self.samples.append({"trainer": sample(trainer.process.pid), "server": sample(server)})
            if not output.ident:
                output.start()
            time.sleep(min(left, SECONDS / SAMPLES))
        self.drained = True
        output.join()

    drained = False

    def drain(self, trainer):
        """Reads the trainer's output, because a full pipe would block it."""
        while not self.drained:
            with contextlib.suppress(AssertionError):
                trainer.wait_for(r"^no line has this$", timeout=1)

    def medians(self, process, what):
        quarter = len(self.samples) // 4
        return [statistics.median(entry[process][what] for entry in part)
                for part in (self.samples[quarter:2 * quarter], self.samples[-quarter:])]


def check(soak, code, output, heard):
    """The failures, one per line."""
    wrong = []
    reports, _, bad = journal(soak.run_dir)
    sequences = [report["sequence"] for report in reports]
    if code != 143 or "weights sha256" not in output:
        wrong.append(f"the trainer ended with {code}: {output[-2000:]}")
    if bad or sequences != list(range(1, len(sequences) + 1)):
        wrong.append(f"the journal lacks reports: {len(sequences)} up to {max(sequences, default=0)}, {bad} lines damaged")
    if report_sequences(heard) != sequences:
        wrong.append(f"the client that reads got {len(report_sequences(heard))} of {len(sequences)} reports")
    dropped = re.findall(r"^ptqwatch_dropped_reports_total\{(.*)\} (\d+)$", soak.pages[-1], re.M)
    if [labels for labels, _ in dropped if "slow_subscriber" not in labels]:
        wrong.append(f"reports are dropped: {dropped}")
    for process, megabytes in MAY_GROW_MB.items():
        for what, most in (("threads", 0), ("descriptors", 2), ("megabytes", megabytes)):
            early, late = soak.medians(process, what)
            print(f"{process}: {what} {early:.1f} in the second quarter, {late:.1f} in the last")
            if late > early + most:
                wrong.append(f"{what} of the {process} grow from {early:.1f} to {late:.1f}")
    print(f"{SECONDS:.0f} s, {len(sequences)} reports, {len(soak.samples)} samples; dropped for the client that does not read: "
          f"{sum(int(count) for _, count in dropped)}", flush=True)
    return wrong


def main(bin_dir):
    with tempfile.TemporaryDirectory() as run_dir:
        soak = Soak(bin_dir, run_dir)
        wrong = check(soak, *soak.run())
    for line in wrong:
        print("soak:", line, file=sys.stderr)
    # A server that has lived for five seconds is started again after the shortest pause.
    kills = [["server_killed_test.py", f"{bin_dir}/run_trainer", f"{bin_dir}/ptqwatch", "--kills", str(KILLS), "--life", "5.5"],
             ["killed_test.py", f"{bin_dir}/run_trainer", "--kills", str(KILLS)]]
    failed = [subprocess.run([sys.executable, os.path.join(HERE, words[0]), *words[1:]], check=False).returncode for words in kills]
    return 1 if wrong or any(failed) else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
