#!/usr/bin/env python3
"""Clients that flood the servers of a training process: it trains on to the same bits, and other clients are served afterwards.

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
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from trainer import Trainer  # noqa: E402

RUN_TRAINER = PTQWATCH = None
STEPS = ["--steps", "2000"]
DESCRIPTORS = 160
CONNECTIONS = 5000  # to each server


def weights(output):
    return re.search(r"^weights (\d+)$", output, re.MULTILINE)[1]


def hpack_length(number):
    """A string's length as HPACK writes it, without Huffman coding."""
    if number < 127:
        return bytes([number])
    rest, out = number - 127, [127]
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes([*out, rest])


def header(name, value):
    """A literal header that is never indexed."""
    return b"\0" + hpack_length(len(name)) + name + hpack_length(len(value)) + value


def frame(kind, flags, payload, stream=1):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


SETTINGS, HEADERS, CONTINUATION, RST_STREAM, END_HEADERS = 4, 1, 9, 3, 4
CALL = b"".join(header(name, value) for name, value in (
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/ptqwatch.v1.MonitorService/GetStatus"), (b":authority", b"x"),
    (b"content-type", b"application/grpc")))


class Served(unittest.TestCase):
    """A trainer with both servers."""

    FLAGS = ()

    def setUp(self):
        self.stack = self.enterContext(contextlib.ExitStack())
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))  # the trainer inherits it
        try:
            self.trainer = self.stack.enter_context(Trainer(RUN_TRAINER, *STEPS, *self.FLAGS, "--serve", "on", "--linger", "on", "--checkpoints",
                                                            folder, short=False))
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

    def memory(self):
        with open(f"/proc/{self.trainer.process.pid}/status", encoding="ascii", errors="replace") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    def connect(self, port):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        # Closing resets it, which keeps no port busy.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return connection

    def eventually(self, condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def is_served(self):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.page, timeout=10) as answer:
                if b"ptqwatch_step " not in answer.read():
                    return False
            done = subprocess.run([PTQWATCH, "status", self.grpc], capture_output=True, timeout=60, check=False)
            return done.returncode == 0
        return False

    def assert_served(self):
        self.eventually(self.is_served, "a scrape and a status work")

    def assert_unharmed(self):
        self.assert_served()
        self.eventually(lambda: self.descriptors() <= self.before + 2, "no descriptor is leaked")
        self.trainer.wait_for(r"^weights ")
        self.trainer.process.send_signal(signal.SIGTERM)
        code, out, err = self.trainer.finish(timeout=60)
        self.assertEqual(code, 143, err)
        alone = subprocess.run([RUN_TRAINER, *STEPS, "--monitor", "off"], text=True, capture_output=True, timeout=120, check=True)
        self.assertEqual(weights(out), weights(alone.stdout))
        self.assertRegex(out, r"(?m)^checkpoints \d+ failed 0$")


class Clients(Served):
    def test_ten_thousand_connections(self):
        greetings = (b"", b"GET /metrics HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x7f" * 100)
        most = 0
        for start in range(0, CONNECTIONS, 100):
            with contextlib.ExitStack() as batch:
                for number in range(start, start + 100):
                    for port in (self.http_port, self.grpc_port):
                        connection = batch.enter_context(self.connect(port))
                        with contextlib.suppress(OSError):
                            connection.sendall(greetings[number % len(greetings)])
                most = max(most, self.descriptors())
        self.assertLess(most, DESCRIPTORS - 32, "the trainer has descriptors left")
        self.assert_unharmed()

    def test_headers_without_end(self):
        for opening in (CALL + header(b"te", b"trailers"), b""):
            before = self.memory()
            with self.connect(self.grpc_port) as client:
                with self.assertRaises(OSError, msg="it is cut off"):
                    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, b"", 0) + frame(HEADERS, 0, opening))
                    for number in range(40000):
                        client.sendall(frame(CONTINUATION, 0, header(b"a%d" % number, b"x" * 7000)))
            self.assertLess(self.memory() - before, 100 << 20)
        self.assert_unharmed()

    def test_headers_that_grpc_cannot_encode(self):
        # CVE-2023-1428: the message about a header that is too large ended the process.
        for bad in (header(b"te", b"x"), header(b"grpclb_client_stats", b"x"), header(b":scheme", b"x")):
            with self.connect(self.grpc_port) as client, contextlib.suppress(OSError):
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, b"", 0)
                               + frame(HEADERS, END_HEADERS, CALL + bad + header(b"a", b"y" * 9000)))
                while client.recv(4096):  # until the server ends the connection or has nothing more to say
                    client.settimeout(0.5)
        self.assert_unharmed()

    def test_streams_that_are_reset_at_once(self):
        # CVE-2023-44487.
        with self.connect(self.grpc_port) as client, contextlib.suppress(OSError):
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, b"", 0))
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
            for port, begin in ((self.http_port, b"GET /metrics HTTP/1.1\r\nX: "), (self.grpc_port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")):
                for _ in range(8):
                    connection = slow.enter_context(self.connect(port))
                    with contextlib.suppress(OSError):
                        connection.sendall(begin)
            # Those that wait are cut off one after the other, or everybody else would wait for ever.
            self.assert_served()
        self.assert_unharmed()


class Children(Served):
    FLAGS = ("--forks", "4")

    def test_end_and_leave_the_servers_to_the_parent(self):
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
            trainer.process.send_signal(signal.SIGTERM)
            trainer.finish(timeout=60)
        ours = {name: sets for name, sets in cpus.items() if name.startswith("ptqw")}
        self.assertLessEqual({"ptqwatch", "ptqw-http", "ptqw-grpc-door"}, set(ours), cpus.keys())
        for name, sets in ours.items():
            self.assertEqual(sets, [allowed] * len(sets), name)


if __name__ == "__main__":
    RUN_TRAINER, PTQWATCH = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
