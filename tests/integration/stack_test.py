#!/usr/bin/env python3
"""Tests dashboards/stack by itself: stack_test.py [unittest arguments]"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from beside import eventually
from dashboard_files import DASHBOARDS
from servers import PrometheusApi, free_port

STACK = os.path.join(DASHBOARDS, "stack")


def stack(*arguments, **environment):
    done = subprocess.run([sys.executable, STACK, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


class Stack(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.state = os.path.join(self.folder, "state")
        self.addCleanup(stack, "down", "--state", self.state)

    def up(self, *flags, **environment):
        return stack("up", "--state", self.state, "--prometheus-port", self.ports[0], "--alertmanager-port", self.ports[1],
                     *flags, **environment)

    def processes(self):
        with open(os.path.join(self.state, "servers.json"), encoding="utf-8") as file:
            return {name: server["pid"] for name, server in json.load(file).items()}

    def test_starts_and_ends_both_once(self):
        self.assertEqual(stack("status", "--state", self.state)[:2], (3, "prometheus down\nalertmanager down\n"))
        self.assertEqual(stack("down", "--state", self.state), (0, "nothing was up\n", ""))
        for _ in range(5):  # another process may take a port in between
            self.ports = free_port(), free_port()
            code, out, err = self.up("--target", "127.0.0.1:1", "--target", "127.0.0.1:2", "--interval", "1s")
            if code == 0:
                break
        self.assertEqual(code, 0, err)
        self.assertIn(f"prometheus http://127.0.0.1:{self.ports[0]}\nalertmanager http://127.0.0.1:{self.ports[1]}\n", out)

        code, _, err = self.up()
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^stack: already up: .*\n$")
        prometheus = PrometheusApi(f"127.0.0.1:{self.ports[0]}")
        self.assertEqual({labels["instance"] for labels, _ in prometheus.wait("up == 0 and count(up) == 2 or up == 0")} -
                         {"127.0.0.1:1", "127.0.0.1:2"}, set())
        groups = prometheus.get("rules")["groups"]
        self.assertEqual({group["name"] for group in groups},
                         {"ptqwatch_runs", "ptqwatch_quantization", "ptqwatch_training", "ptqwatch_monitor"})
        managers = eventually(lambda: prometheus.get("alertmanagers")["activeAlertmanagers"], "Prometheus knows Alertmanager")
        self.assertEqual([manager["url"] for manager in managers], [f"http://127.0.0.1:{self.ports[1]}/api/v2/alerts"])
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[1]}/api/v2/status", timeout=10) as answer:
            self.assertNotIn("webhook", json.load(answer)["config"]["original"])  # without --webhook it posts nowhere

        eventually(lambda: "target 127.0.0.1:1 down" in stack("status", "--state", self.state)[1], "status names the target")
        processes = self.processes()
        # Status reports a server that died; that does not keep `down` from ending the other.
        os.kill(processes["alertmanager"], signal.SIGKILL)
        eventually(lambda: "alertmanager ended by itself" in stack("status", "--state", self.state)[1], "status says what ended")
        self.assertEqual(stack("status", "--state", self.state)[0], 3)
        self.assertEqual(stack("down", "--state", self.state), (0, "ended prometheus\n", ""))
        self.assertFalse(os.path.exists(f"/proc/{processes['prometheus']}/fd/0"))
        self.assertEqual(stack("down", "--state", self.state), (0, "nothing was up\n", ""))

    def test_ends_only_what_it_started(self):
        os.mkdir(self.state)
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
            with open(os.path.join(self.state, "servers.json"), "w", encoding="utf-8") as file:
                # The process number of a dead server now belongs to another process.
                json.dump({"prometheus": {"pid": stranger.pid, "start_time": 1, "port": 9090}}, file)
            self.assertEqual(stack("down", "--state", self.state), (0, "nothing was up\n", ""))
            self.assertIsNone(stranger.poll())
            stranger.communicate(b"\n")

    def test_says_what_is_wrong_in_one_line(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            for which in ("prometheus", "alertmanager"):
                self.ports = free_port(), free_port()
                code, _, err = self.up(f"--{which}-port", port)
                self.assertEqual((code, err), (1, f"stack: --{which}-port {port}: another program uses 127.0.0.1:{port}\n"))
        self.ports = free_port(), free_port()
        code, _, err = self.up(PATH=self.folder, XDG_CACHE_HOME=self.folder)
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^stack: there is no program 'prometheus' .*: run \./setup\n$")
        code, _, err = stack("up", "--state", "/dev/null/x")
        self.assertEqual((code, err), (1, "stack: --state /dev/null/x: Not a directory\n"))
        for flags, says in ((["--target", "nonsense"], "'nonsense' is not HOST:PORT"),
                            (["--interval", "0s"], "'0s' is not a duration"),
                            (["--prometheus-port", "70000"], "'70000' is not a port"),
                            (["--webhook", "ftp://x"], "'ftp://x' is not an http")):
            code, _, err = stack("up", "--state", self.state, *flags)
            self.assertEqual(code, 2)
            self.assertIn(says, err)


if __name__ == "__main__":
    unittest.main()
