#!/usr/bin/env python3
"""Runs, `ptqwatch serve` and the stack of dashboards/ together: which alerts reach the people on call.

usage: alerts_test.py CHAR_GPT PTQWATCH [unittest arguments]

Four runs. `decay` decays, and quantization gets worse; `constant` does not; `mortal` is killed and resumed; `broken` computes
NaN. `decay` and `mortal` also serve their own numbers. Rules and routes are the shipped ones with all times divided by sixty.
"""

import datetime
import operator
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from beside import eventually
from dashboard_files import expressions, filled_in, grafana, variables
from servers import Receiver, Stack
from trainer import Trainer, journal, prometheus_program

CHAR_GPT, PTQWATCH = None, None
FASTER = 60
STEPS, DECAY = 1600, 0.4
RUN = ["--model", "mlp", "--width", "32", "--layers", "2", "--group-size", "-1", "--methods", "gptq", "--bits", "3,4",
       "--probe-sequences", "128", "--calibration-sequences", "32", "--grpc", "off"]
WATCHED = [*RUN, "--steps", str(STEPS), "--every", "40", "--wait", "on", "--artifact-size", "--decay-fraction", str(DECAY)]
# These query values that exist only if a minimum was found: see "Minimum at step" in the dashboards.
ONLY_WHERE_IT_TURNED = {"ptqwatch-overview: Minimum at step A", "ptqwatch-overview: Minimum A"}
# This one queries a value that exists while the loss no longer improves.
ONLY_WHERE_THE_LOSS_CONVERGED = {"ptqwatch-overview: Loss stopped improving A"}
# These query several ranks: ranks_test.
ONLY_WITH_RANKS = {f"ptqwatch-health: {panel} A" for panel in
                   ("Replicas", "Ranks that are not healthy", "Where they differ", "Behind the newest report", "Reports by rank")}
# These query a shadow cooldown's prediction, which takes longer than these runs.
ONLY_AFTER_A_COOLDOWN = {f"ptqwatch-overview: Where the decay would end {query}" for query in "BCD"}
# This one queries losses a byte, for which this trainer would have to say how many bytes a token has.
ONLY_WITH_BYTES = {"ptqwatch-overview: Loss against size E"}
# This one queries weights that no quantizer can measure; here all can be.
ONLY_WITH_UNSEEN_WEIGHTS = {"ptqwatch-layers: Matrix weights that are not measured A"}

class Alerts(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def start(self, *flags, **options):
        return self.enterContext(Trainer(CHAR_GPT, *flags, short=False, **options))

    def run_dir(self, name):
        return os.path.join(self.folder, name)

    def mortal(self, address):
        return self.start(*RUN, "--steps", "1000000", "--every", "200", "--http", address,
                          "--run-dir", self.run_dir("mortal"))

    def test_people_on_call_hear_what_they_should(self):
        doomed = self.mortal("127.0.0.1:0")
        self.mortal_address = doomed.wait_for(r"^metrics http://(\S+)/metrics$")[1]
        decay = self.start(*WATCHED, "--http", "127.0.0.1:0", "--linger", "600", "--run-dir", self.run_dir("decay"))
        constant = self.start(*WATCHED, "--schedule", "constant", "--http", "off", "--run-dir", self.run_dir("constant"))
        broken = self.start(*RUN, "--steps", "400", "--every", "40", "--wait", "on", "--lr", "1000", "--weight-decay", "10",
                            "--http", "off", "--linger", "600", "--run-dir", self.run_dir("broken"))
        run_dirs = map(self.run_dir, ("decay", "constant", "mortal", "broken"))
        served = self.enterContext(Trainer(PTQWATCH, "serve", *run_dirs, "--http", "127.0.0.1:0", "--grpc", "off", short=False))
        self.own = decay.wait_for(r"^metrics http://(\S+)/metrics$")[1]
        self.server = served.wait_for(r"^metrics http://(\S+)/metrics$")[1]
        self.received = Receiver()
        self.addCleanup(self.received.stop)
        targets = [self.server, self.own, self.mortal_address]
        self.stack = self.enterContext(Stack(self.folder, FASTER, targets, self.received.url))
        self.prometheus = self.stack.prometheus

        self.assert_a_killed_run_is_noticed_and_resumed(doomed)
        receiver, _, alert = self.received.wait("firing", alertname="PtqwatchNonFinite", cause="model", run="broken")
        self.assertEqual((receiver, alert["labels"]["severity"]), ("page", "page"))
        broken.process.terminate()
        decay.wait_for(r"^weights sha256", timeout=240)
        constant.finish()
        self.assert_the_decay_is_reported()
        self.assert_the_page_is_clean()
        self.assert_every_expression_returns_data()
        decay.process.terminate()
        self.received.wait("resolved", alertname="PtqwatchDecayDegradation", instance=self.server, run="decay")
        self.assert_nothing_else_was_said()

    def assert_a_killed_run_is_noticed_and_resumed(self, doomed):
        self.prometheus.wait('ptqwatch_snapshot_step{run="mortal"} and ptqwatch_steps_total{run="mortal"} > 100')
        self.prometheus.wait(f'ptqwatch_steps_total{{instance="{self.mortal_address}"}} > 100')
        doomed.process.kill()
        doomed.process.wait()
        down = {"alertname": "PtqwatchMonitorStale", "cause": "target_down", "instance": self.mortal_address}
        silent = {"alertname": "PtqwatchMonitorStale", "cause": "no_sign_of_life", "instance": self.server, "run": "mortal"}
        self.assertEqual(self.received.wait("firing", **down)[0], "warning")
        self.assertEqual(self.received.wait("firing", **silent)[0], "page")
        with self.mortal(self.mortal_address) as resumed:
            self.received.wait("resolved", **down)
            self.received.wait("resolved", **silent)
            info = self.prometheus.wait(f'ptqwatch_run_info{{instance="{self.mortal_address}"}}')
            self.assertEqual([labels["attempt"] for labels, _ in info], ["2"])
            resumed.process.terminate()
            resumed.finish()

    def assert_the_decay_is_reported(self):
        reports, _, _ = journal(self.run_dir("decay"))
        alarm = next(report for report in reports if report["verdict"]["state"] in ("decay_degradation", "spike"))
        begun = (1 - DECAY) * STEPS
        self.assertEqual(alarm["verdict"]["state"], "decay_degradation")
        self.assertGreater(alarm["step"], begun)
        # Other seeds, and so perhaps other machines, alarm between two and seven tenths of the decay.
        self.assertLessEqual(alarm["step"], begun + 0.9 * DECAY * STEPS)
        for labels in ({"instance": self.own, "run": ""}, {"instance": self.server, "run": "decay"}):
            receiver, has, alert = self.received.wait("firing", alertname="PtqwatchDecayDegradation", **labels)
            self.assertEqual((receiver, has["severity"], has["job"]), ("warning", "warning", "ptqwatch"))
            self.assertIn("quantizing costs", alert["annotations"]["description"])
            self.assertIn("runbooks/PtqwatchDecayDegradation.md", alert["annotations"]["runbook_url"])
            # Not before the snapshot that shows it, and within seconds of its report: a minute and some scrapes, divided by
            # sixty.
            began = datetime.datetime.fromisoformat(alert["startsAt"].replace("Z", "+00:00")).timestamp()
            run = f'instance="{labels["instance"]}", run="{labels["run"]}"'
            (_, newest), = self.prometheus.query(f"ptqwatch_snapshot_step{{{run}}}", time=began)
            self.assertGreaterEqual(newest, alarm["step"])
            self.assertLess(began - alarm["snapshot_time_unix_seconds"], 30)
            print(f"{labels}: decay from step {begun:.0f}, alarm at {alarm['step']}, alert at {newest:.0f}, "
                  f"{began - alarm['snapshot_time_unix_seconds']:.1f} s after the snapshot")

    def assert_the_page_is_clean(self):
        with urllib.request.urlopen(f"http://{self.server}/metrics", timeout=10) as page:
            done = subprocess.run([prometheus_program("promtool"), "check", "metrics"], input=page.read(), capture_output=True,
                                  timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""))

    def assert_every_expression_returns_data(self):
        self.prometheus.wait(f'ptqwatch_snapshot_step{{instance="{self.server}", run="decay"}} == {STEPS}')
        # After a scrape that lasted too long, the queries of its moment find nothing.
        eventually(lambda: operator.le(*self.empty_and_allowed()), lambda: f"each query has data: {self.empty_and_allowed()}")
        self.assertLessEqual(ONLY_WITH_RANKS, self.empty_and_allowed()[0])

    def empty_and_allowed(self):
        """The queries that find nothing now, and those that may, in both the trainer's own exporter and the server of many runs."""
        now = time.time()
        turned = self.prometheus.query(
            'ptqwatch_decay_minimum_step{run="decay"} and on (method, bits, format, run) ptqwatch_verdict_quantizer_info')
        converged = self.prometheus.query('ptqwatch_loss_converged_step{run="decay"}')
        empty = set()
        for instance, run in ((self.own, ".*"), (self.server, "decay")):
            values = {"job": "ptqwatch", "instance": instance, "run": run, "method": ".+", "bits": ".+", "format": ".+"}
            for dashboard in grafana().values():
                for name, selector, label in variables(dashboard):
                    # A trainer's own series have no label run.
                    found = self.prometheus.get(f"label/{label}/values", **{"match[]": filled_in(selector, **values)})
                    self.assertTrue(found or (name == "run" and instance == self.own), (name, selector))
                for where, expression, is_range in expressions(dashboard):
                    expression = filled_in(expression, **values)
                    if not (self.prometheus.query_range(expression, now - 240, now, 1) if is_range
                            else self.prometheus.query(expression)):
                        empty.add(where)
        # A minimum found only for a while is in the ranges but not among the current values.
        return empty, (ONLY_AFTER_A_COOLDOWN | ONLY_WITH_RANKS | ONLY_WITH_BYTES | ONLY_WITH_UNSEEN_WEIGHTS |
                       (set() if turned else ONLY_WHERE_IT_TURNED) |
                       (set() if converged else ONLY_WHERE_THE_LOSS_CONVERGED))

    def assert_nothing_else_was_said(self):
        """No alert for the run without a decay; for the others, only alerts about what happened to them."""
        self.prometheus.wait('ptqwatch_health{run="constant", state="stopped"} == 1')
        self.assertEqual(self.prometheus.query('count by (alertname, cause) (count_over_time(ALERTS{run="constant"}[1h]))'), [])
        said = {(labels["alertname"], labels.get("run", labels["instance"])) for _, _, labels, _ in self.received.got}
        decays = {"PtqwatchDecayDegradation", "PtqwatchCurvatureRising", "PtqwatchQuantizedLossTurned"}
        self.assertLessEqual(said, {(alert, run) for alert in decays for run in (self.own, "decay")} | {
            # `broken` lacks measurements as long as it lives: half a minute on a slow machine.
            ("PtqwatchMonitorStale", run) for run in ("mortal", self.mortal_address, self.own, "broken")} | {
            ("PtqwatchNonFinite", "broken")})


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
