"""Real Prometheus and Alertmanager servers for the tests, and a receiver for their alerts."""

import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

from beside import eventually
from dashboard_files import DASHBOARDS, read


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PrometheusApi:
    """Queries a server at HOST:PORT."""

    def __init__(self, address):
        self.address = address

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error

    def query(self, expression, **parameters):
        """[(labels, value)] of an instant query."""
        return [(row["metric"], float(row["value"][1])) for row in self.get("query", query=expression, **parameters)["result"]]

    def query_range(self, expression, start, end, step):
        return self.get("query_range", query=expression, start=start, end=end, step=step)["result"]

    def wait(self, expression, timeout=60):
        """Waits for the query's first non-empty answer."""
        return eventually(lambda: self.query(expression), lambda: f"no answer to {expression!r}; targets: {self.query('up')}", timeout)


class Receiver:
    """Receives Alertmanager's posts: (receiver, status, labels, alert), oldest first."""

    def __init__(self):
        self.got = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.got += [(body["receiver"], alert["status"], alert["labels"], alert) for alert in body["alerts"]]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def find(self, status, **labels):
        """The newest alert with this status and these labels; "" means that the label must be absent."""
        for receiver, its, has, alert in reversed(self.got):
            if its == status and all(has.get(name, "") == value for name, value in labels.items()):
                return receiver, has, alert
        return None

    def wait(self, status, timeout=90, **labels):
        return eventually(lambda: self.find(status, **labels),
                     lambda: f"no {status} {labels}; got {sorted({(s, str(has)) for _, s, has, _ in self.got})}", timeout)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def seconds(duration):
    return float(duration[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[duration[-1]]


def sped_up(text, factor):
    """Rules or routes with every duration divided by `factor`. Expressions do not change otherwise."""
    def shorter(match):
        return f"{match[1]}{max(1, round(1000 * seconds(match[2]) / factor))}ms"

    text = re.sub(r"(\[|offset |for: |group_wait: |group_interval: |repeat_interval: )(\d+[smhd])\b", shorter, text)
    return re.sub(r"(\d+) # seconds", lambda match: f"{float(match[1]) / factor:g}", text)


class Stack:
    """dashboards/stack with the shipped files, sped up."""

    def __init__(self, folder, factor, targets, webhook):
        self.folder = os.path.join(folder, "dashboards")
        shutil.copytree(DASHBOARDS, self.folder)
        for path in ("prometheus/rules.yml", "prometheus/alerts.yml", "alertmanager/alertmanager.yml"):
            text = sped_up(read(self.folder, path), factor)
            with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
                file.write(text)
        self.state = os.path.join(folder, "state")
        flags = [flag for target in targets for flag in ("--target", target)]
        # Another process may take a port in between, so try several.
        for _ in range(5):
            ports = free_port(), free_port()
            done = self("up", *flags, "--webhook", webhook, "--interval", "500ms", "--prometheus-port", ports[0],
                        "--alertmanager-port", ports[1])
            if done.returncode == 0:
                break
        else:
            raise AssertionError(done.stdout + done.stderr)
        self.prometheus = PrometheusApi(f"127.0.0.1:{ports[0]}")

    def __call__(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(self.folder, "stack"), *map(str, arguments), "--state", self.state],
                              capture_output=True, text=True, timeout=120, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self("down")
