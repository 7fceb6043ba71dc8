#!/usr/bin/env python3
"""Clients flood the server beside a training run: training gives the same bits, and other clients are served afterwards.

usage: clients_test.py RUN_TRAINER PTQWATCH [unittest arguments]
"""

import contextlib
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from beside import eventually, inet_sockets, resident_bytes, server_of  # noqa: E402
from http2 import CONTINUATION, END_HEADERS, HEADERS, OPENING, PREFACE, RST_STREAM, call, frame, header  # noqa: E402
from trainer import Trainer, weights  # noqa: E402

RUN_TRAINER = PTQWATCH = None
STEPS = ["--steps", "2000"]
DESCRIPTORS = 160
CONNECTIONS = 5000  # to each port
MAX_MEMORY = 512 << 20  # of data: ServeOptions::max_memory
CALL = call(b"GetStatus")
PROGRAM_BYTES = 128 << 20  # more than the code of the server and of its libraries


class Served(unittest.TestCase):
    """A trainer with a server beside it."""

    FLAGS = ()

    def setUp(self):
        self.stack = self.enterContext(contextlib.ExitStack())
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))  # the trainer inherits it
        try:
            self.trainer = self.stack.enter_context(Trainer(RUN_TRAINER, *STEPS, *self.FLAGS, "--serve", "on", "--linger", "on", "--run-dir",
                                                            os.path.join(folder, "run"), "--checkpoints", folder, short=False))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.page = self.trainer.wait_for(r"^metrics (http://\S+)$")[1]
        self.grpc = self.trainer.wait_for(r"^grpc (\S+)$")[1]
        self.trainer.wait_for(r"^report ")
        self.http_port, self.grpc_port = (int(re.search(r":(\d+)", text[7:])[1]) for text in (self.page, "       " + self.grpc))
        self.assert_served()
        self.before = self.descriptors()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.trainer.process.pid}/fd"))

    def connect(self, port):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        # An immediate reset keeps no port busy.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return connection

    def is_served(self):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.page, timeout=10) as answer:
                if b"ptqwatch_step " not in answer.read():
                    return False
            done = subprocess.run([PTQWATCH, "status", self.grpc], capture_output=True, timeout=60, check=False)
            return done.returncode == 0
        return False

    def assert_served(self):
        # A server that has ended is started again within 30 s.
        eventually(self.is_served, "a scrape and a status work", seconds=90)

    def assert_unharmed(self):
        self.assertEqual(inet_sockets(self.trainer.process.pid), set(), "clients do not reach the trainer")
        self.assert_served()
        eventually(lambda: self.descriptors() <= self.before + 2, "no descriptor is leaked")
        self.assertLess(resident_bytes(server_of(self.trainer.process.pid)), MAX_MEMORY + PROGRAM_BYTES)
        self.trainer.wait_for(r"^weights ")
        self.trainer.process.send_signal(signal.SIGTERM)
        code, out, err = self.trainer.finish(timeout=60)
        self.assertEqual(code, 143, err)
        alone = subprocess.run([RUN_TRAINER, *STEPS, "--monitor", "off"], text=True, capture_output=True, timeout=120, check=True)
        self.assertEqual(weights(out), weights(alone.stdout))
        self.assertRegex(out, r"(?m)^checkpoints \d+ failed 0$")


class Clients(Served):
    def test_ten_thousand_connections(self):
        greetings = (b"", b"GET /metrics HTTP/1.1\r\n", PREFACE, b"\x7f" * 100)
        sockets = set()
        for start in range(0, CONNECTIONS, 100):
            with contextlib.ExitStack() as batch:
                for number in range(start, start + 100):
                    for port in (self.http_port, self.grpc_port):
                        with contextlib.suppress(OSError):  # refused while the server is started again
                            connection = batch.enter_context(self.connect(port))
                            connection.sendall(greetings[number % len(greetings)])
                sockets |= inet_sockets(self.trainer.process.pid)
        self.assertEqual(sockets, set(), "no connection takes a descriptor of the trainer's")
        self.assert_unharmed()

    def test_headers_without_end(self):
        # CVE-2023-33953. The server ends the connection and acknowledges nothing more.
        for opening in (CALL + header(b"te", b"trailers"), b""):
            with contextlib.suppress(OSError), self.connect(self.grpc_port) as client:
                client.settimeout(1)
                client.sendall(OPENING + frame(HEADERS, 0, opening))
                for number in range(100000):
                    client.sendall(frame(CONTINUATION, 0, header(b"a%d" % number, b"x" * 7000)))
            self.assert_served()
        self.assert_unharmed()

    def test_headers_that_grpc_cannot_encode(self):
        # CVE-2023-1428: the error message for a header that is too large ended the process.
        for bad in (header(b"te", b"x"), header(b"grpclb_client_stats", b"x"), header(b":scheme", b"x")):
            with self.connect(self.grpc_port) as client, contextlib.suppress(OSError):
                client.sendall(OPENING
                               + frame(HEADERS, END_HEADERS, CALL + bad + header(b"a", b"y" * 9000)))
                while client.recv(4096):  # until the server closes the connection or sends nothing more
                    client.settimeout(0.5)
        self.assert_unharmed()

    def test_streams_that_are_reset_at_once(self):
        # CVE-2023-44487.
        with self.connect(self.grpc_port) as client, contextlib.suppress(OSError):
            client.sendall(OPENING)
            for stream in range(1, 20001, 2):
                client.sendall(frame(HEADERS, END_HEADERS, CALL, stream) + frame(RST_STREAM, 0, struct.pack(">I", 8), stream))
        self.assert_unharmed()

    def test_four_scrape_loops(self):
        pages = []

        def scrape():
            for _ in range(150):
                with urllib.request.urlopen(self.page, timeout=30) as answer:
                    pages.append(answer.read())

        loops = [threading.Thread(target=scrape) for _ in range(4)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join(timeout=120)
        self.assertEqual(len(pages), 600)
        self.assert_unharmed()

    def test_slow_clients(self):
        with contextlib.ExitStack() as slow:
            for port, begin in ((self.http_port, b"GET /metrics HTTP/1.1\r\nX: "), (self.grpc_port, PREFACE)):
                for _ in range(8):
                    connection = slow.enter_context(self.connect(port))
                    with contextlib.suppress(OSError):
                        connection.sendall(begin)
            # Waiting clients must be cut off one by one, or all others would wait forever.
            self.assert_served()
        self.assert_unharmed()


class Children(Served):
    FLAGS = ("--forks", "4")

    def test_end_and_leave_the_server_to_the_parent(self):
        self.trainer.wait_for(r"^weights ")
        self.assertEqual([line for line in self.trainer.lines if line.startswith("child ")], 4 * ["child 0"])
        self.assert_unharmed()


class Threads(unittest.TestCase):
    def test_run_on_all_cpus_though_the_trainer_is_bound_to_one(self):
        allowed = os.sched_getaffinity(0)
        if len(allowed) < 2:
            self.skipTest("there is one CPU")
        env = {"OMP_PROC_BIND": "close", "OMP_NUM_THREADS": "2"}
        with Trainer(RUN_TRAINER, *STEPS, "--serve", "on", "--linger", "on", short=False, env=env) as trainer:
            trainer.wait_for(r"^report ")
            pid = trainer.process.pid
            self.assertEqual(len(os.sched_getaffinity(pid)), 1, "OpenMP binds the trainer's thread")
            cpus = {}
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as comm:
                    cpus.setdefault(comm.read().strip(), []).append(os.sched_getaffinity(int(task)))
            cpus["ptqwatch serve"] = [os.sched_getaffinity(server_of(pid))]
            trainer.process.send_signal(signal.SIGTERM)
            trainer.finish(timeout=60)
        ours = {name: sets for name, sets in cpus.items() if name.startswith("ptqw")}
        self.assertLessEqual({"ptqwatch", "ptqw-server", "ptqwatch serve"}, set(ours), cpus.keys())
        for name, sets in ours.items():
            self.assertEqual(sets, [allowed] * len(sets), name)


if __name__ == "__main__":
    RUN_TRAINER, PTQWATCH = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
