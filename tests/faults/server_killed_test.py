#!/usr/bin/env python3
"""The server beside a run is killed again and again while clients read: the run trains on to the same bits, and a client that resumes gets every
report once.

usage: server_killed_test.py RUN_TRAINER PTQWATCH [--kills N] [--life SECONDS] [unittest arguments]
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from beside import children_of, eventually, server_of  # noqa: E402
from trainer import Trainer, journal, weights  # noqa: E402

RUN_TRAINER = PTQWATCH = None
KILLS = 4
LIFE = 0.3  # seconds of a server, from its first answer on
STEPS = ["--steps", "2000", "--every", "50"]


class Stream:
    """Server-sent events, read as a browser reads them: after an end it asks again with Last-Event-ID."""

    def __init__(self, url):
        self.url, self.last_id, self.sequences, self.connections = url, "", [], 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.ended.wait(0.05):
            request = urllib.request.Request(self.url, headers={"Last-Event-ID": self.last_id} if self.last_id else {})
            with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=10) as answer:
                self.connections += 1
                self.take(answer)

    def take(self, answer):
        kind, got_id = "", ""
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                got_id = value
            elif name == "event":
                kind = value
            elif name == "data" and kind in ("report", "event"):
                if not line.endswith(b"}\n"):
                    return  # cut off
                self.last_id = got_id
                if kind == "report":
                    self.sequences.append(json.loads(value)["sequence"])
                elif '"kind":"stopped"' in value:
                    self.ended.set()

    def wait(self):
        self.thread.join(timeout=60)
        self.ended.set()
        self.thread.join(timeout=30)


def served(run_dir):
    """What is known of the server."""
    with open(f"{run_dir}/status.json", encoding="utf-8") as status, open(f"{run_dir}/serve.log", encoding="utf-8") as log:
        return f"{json.load(status)['status']['server']}; serve.log: {log.read()[-2000:]}"


def answers(url):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status == 200
    return False


class ServerKilled(unittest.TestCase):
    def test_again_and_again(self):
        with tempfile.TemporaryDirectory() as folder, \
                Trainer(RUN_TRAINER, *STEPS, "--serve", "on", "--server-linger", "10", "--linger", "on", "--run-dir", f"{folder}/run",
                        short=False) as trainer:
            metrics = trainer.wait_for(r"^metrics (http://\S+)$")[1]
            grpc = trainer.wait_for(r"^grpc (\S+)$")[1]
            trainer.wait_for(r"^report ")
            eventually(lambda: answers(metrics))
            listener = subprocess.Popen([PTQWATCH, "watch", grpc, "--json", "--timeout", "120"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stream = Stream(metrics.replace("/metrics", "/api/v1/events?after=0&after_event=0"))
            eventually(lambda: stream.connections)
            for _ in range(KILLS):
                server = server_of(trainer.process.pid)
                os.kill(server, signal.SIGKILL)
                eventually(lambda: server_of(trainer.process.pid) not in (None, server) and answers(metrics),
                           lambda: served(f"{folder}/run"), seconds=120)
                # The server's life. Reads the trainer's output meanwhile: its monitor would wait at a full pipe.
                with contextlib.suppress(AssertionError):
                    trainer.wait_for(r"^no line has this$", timeout=LIFE)
            self.assertEqual(children_of(trainer.process.pid), [])
            trainer.wait_for(r"^weights ")
            trainer.process.send_signal(signal.SIGTERM)
            code, out, err = trainer.finish(timeout=60)
            heard, said = listener.communicate(timeout=120)
            stream.wait()
            reports, events, bad = journal(f"{folder}/run")
        self.assertEqual((code, bad), (143, 0), err)
        written = [report["sequence"] for report in reports]
        self.assertEqual(listener.returncode, 0, said)
        self.assertEqual([line["sequence"] for line in map(json.loads, heard.splitlines()) if "event" not in line], written)
        self.assertEqual(stream.sequences, written)
        self.assertGreater(stream.connections, 1)
        self.assertGreaterEqual(sum(event["kind"] == "server_failed" for event in events), KILLS)
        alone = subprocess.run([RUN_TRAINER, *STEPS, "--monitor", "off"], text=True, capture_output=True, timeout=120, check=True)
        self.assertEqual(weights(out), weights(alone.stdout))
        print(f"{KILLS} kills, {len(written)} reports, {stream.connections} connections of the stream")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("run_trainer")
    parser.add_argument("ptqwatch")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--life", type=float, default=LIFE)
    parser.add_argument("--steps", default=STEPS[1], help="of which the weights are compared; training goes on to the last kill")
    parser.add_argument("--every", default=STEPS[3])
    arguments, rest = parser.parse_known_args()
    RUN_TRAINER, PTQWATCH, KILLS, LIFE = arguments.run_trainer, arguments.ptqwatch, arguments.kills, arguments.life
    STEPS[1::2] = arguments.steps, arguments.every
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
