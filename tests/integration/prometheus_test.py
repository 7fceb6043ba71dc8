#!/usr/bin/env python3
"""A real Prometheus server scrapes a training run and answers queries: prometheus_test.py CHAR_GPT [unittest arguments]"""

import functools
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from servers import PrometheusApi, free_port
from trainer import Trainer, journal, prometheus_program

CHAR_GPT = None


class Prometheus(PrometheusApi):
    """A Prometheus server on loopback, with this configuration text."""

    def __init__(self, folder, text):
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        # Another process may take the port in between, so try several.
        for _ in range(5):
            super().__init__(f"127.0.0.1:{free_port()}")
            self.log = open(os.path.join(folder, "log"), "wb+")
            self.process = subprocess.Popen(
                [prometheus_program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={self.address}"], stdout=self.log, stderr=subprocess.STDOUT)
            if self.ready():
                return
            self.stop()
        raise AssertionError("prometheus did not start:\n" + open(self.log.name, encoding="utf-8").read())

    def ready(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5).close()
                return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        return False

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class RealServer(unittest.TestCase):
    def test_scrapes_a_run_and_answers_queries(self):
        with tempfile.TemporaryDirectory() as folder, \
                Trainer(CHAR_GPT, "--steps", "200", "--linger", "300", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                        "--run-dir", os.path.join(folder, "run")) as trainer:
            target = trainer.wait_for(r"^metrics http://(\S+)/metrics$")[1]
            server = Prometheus(folder, "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n  - job_name: training\n"
                                        f"    static_configs:\n      - targets: ['{target}']\n")
            try:
                trainer.wait_for(r"^weights sha256")
                # The page of a finished run does not change, so the newest scrape must agree with the journal, which is written
                # meanwhile.
                # A later scrape may last too long, after which the queries of its moment find nothing.
                moment = server.wait("timestamp(ptqwatch_snapshot_step == 200)")[0][1]
                query = functools.partial(server.query, time=moment)
                last = journal(os.path.join(folder, "run"))[0][-1]
                self.assertEqual(last["step"], 200)
                self.assertEqual([value for _, value in query("up")], [1])
                errors = {(labels["method"], int(labels["bits"])): value
                          for labels, value in query("ptqwatch_quantization_error_ratio")}
                self.assertEqual(len(errors), 4)
                for entry in last["quantization"]:  # the text format has 16 digits
                    self.assertAlmostEqual(errors[entry["method"], entry["bits"]] / entry["error_ratio"], 1, places=12)
                for name, key in (("ptqwatch_hessian_trace", "trace"), ("ptqwatch_hessian_top_eigenvalue", "top_eigenvalue"),
                                  ("ptqwatch_weighted_hessian_trace", "weighted_trace")):
                    (_, value), = query(name)
                    self.assertAlmostEqual(value / last["curvature"][key], 1, places=12, msg=name)
                phases = query("ptqwatch_lr_phase == 1")
                self.assertEqual([labels["phase"] for labels, _ in phases], ["decay"])
                # The stall histogram supports quantiles.
                self.assertEqual(len(query("histogram_quantile(0.9, ptqwatch_training_stall_seconds_bucket)")), 1)
                # Two related numbers come from the same scrape.
                self.assertEqual(len(query("ptqwatch_steps_total == on(instance) ptqwatch_step")), 1)
            finally:
                server.stop()


if __name__ == "__main__":
    CHAR_GPT = sys.argv.pop(1)
    unittest.main()
