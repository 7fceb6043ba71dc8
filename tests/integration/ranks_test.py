#!/usr/bin/env python3
"""Data-parallel training on several processes, seen as one run: ranks_test.py RANKS PTQWATCH [unittest arguments]"""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from beside import eventually, server_of
from dashboard_files import DASHBOARDS, ROOT, expressions, filled_in, grafana, read
from prometheus_test import Prometheus
from servers import sped_up
from trainer import Trainer, journal

RANKS, PTQWATCH = None, None
SMALL = ["--text", os.path.join(ROOT, "LICENSE"), "--width", "8", "--layers", "1", "--heads", "2", "--length", "8", "--batch", "4",
         "--probe-sequences", "32", "--calibration-sequences", "16", "--group-size", "8", "--schedule", "constant", "--warmup", "0"]
UNSERVED = ["--http", "off", "--grpc", "off"]
FASTER = 60


def ptqwatch(*arguments):
    done = subprocess.run([PTQWATCH, *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"ptqwatch {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def reports(lines):
    return [report for report in map(json.loads, lines.splitlines()) if "event" not in report]


class Launch:
    """One launch of the example: a process for each rank, by its number."""

    def __init__(self, test, ranks, *flags, niced=(), flags_of=None, hosts=1):
        store = os.path.join(test.enterContext(tempfile.TemporaryDirectory()), "store")
        self.ranks = [
            test.enterContext(Trainer(RANKS, *SMALL, "--store", store, *flags, *(flags_of or {}).get(rank, ()), short=False,
                                      env={"RANK": str(rank), "LOCAL_RANK": str(rank % (ranks // hosts)), "WORLD_SIZE": str(ranks),
                                           "LOCAL_WORLD_SIZE": str(ranks // hosts), "GROUP_RANK": str(rank // (ranks // hosts))},
                                      before=(lambda: os.nice(10)) if rank in niced else None))
            for rank in range(ranks)]

    def __getitem__(self, rank):
        return self.ranks[rank]

    def weights(self):
        """The hash of the weights of each rank, once all have ended their training."""
        return [rank.wait_for(r"^weights sha256 (\w+)$")[1] for rank in self.ranks]

    def send(self, which, *ranks):
        for rank in ranks or range(len(self.ranks)):
            self[rank].process.send_signal(which)

    def finish(self):
        """The exit codes and the output on standard error, by rank."""
        ended = [rank.finish(timeout=120) for rank in self.ranks]
        return [code for code, _, _ in ended], [err for _, _, err in ended]


class RankRuns(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.run_dir = os.path.join(self.folder, "run")

    def history(self):
        return reports(ptqwatch("history", self.run_dir, "--json"))

    def trains(self, ranks, *flags, **more):
        """Runs a launch to its end and returns the weights, which are equal on all ranks."""
        launch = Launch(self, ranks, *flags, **more)
        weights = launch.weights()
        codes, errors = launch.finish()
        self.assertEqual(codes, [0] * ranks, errors)
        self.assertEqual(len(set(weights)), 1)
        return weights[0]


class Alert(RankRuns):
    STEPS = ["--steps", "60", "--every", "20", "--flip-step", "30", "--flip-rank", "2"]

    def setUp(self):
        super().setUp()
        self.targets = os.path.join(self.folder, "targets", "here.json")
        os.mkdir(os.path.dirname(self.targets))

    def servers(self):
        """The Prometheus of a cluster, which finds its targets in files, and the one above it, which has the alerts."""
        def configured(name, *changes):
            text = read(DASHBOARDS, "prometheus", name)
            for old, new in (("_interval: 15s", "_interval: 500ms"), *changes):
                self.assertIn(old, text)
                text = text.replace(old, new)
            folder = os.path.join(self.folder, name)
            os.mkdir(folder)
            server = Prometheus(folder, text)
            self.addCleanup(server.stop)
            return server

        def rules():
            for name in ("rules.yml", "alerts.yml"):
                path = os.path.join(self.folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(sped_up(read(DASHBOARDS, "prometheus", name), FASTER))
                yield path

        cluster = configured("prometheus.yml", ("rule_files: [rules.yml, alerts.yml]", ""), ("127.0.0.1:9093", "127.0.0.1:1"),
                             ("    # file_sd_configs: [{files: [targets/*.json]}]\n    static_configs:\n      - targets: [\"127.0.0.1:9464\"]\n",
                              f"    file_sd_configs: [{{files: [{self.folder}/targets/*.json]}}]\n"))
        above = configured("federation.yml", ("[rules.yml, alerts.yml]", json.dumps(list(rules()))), ("127.0.0.1:9093", "127.0.0.1:1"),
                           ("127.0.0.1:9090", cluster.address))
        return cluster, above

    def assert_panels_show_ranks(self, prometheus, address):
        of_ranks = [(where, expression, is_range) for where, expression, is_range in expressions(grafana()["ptqwatch-health"])
                    if re.search(r"ptqwatch_(rank|replicas)_", expression)]
        self.assertEqual(len(of_ranks), 5)

        def has_data(expression, is_range):
            query = filled_in(expression, job="ptqwatch", instance=address, run=".*")
            now = time.time()
            return prometheus.query_range(query, now - 10, now, 1) if is_range else prometheus.query(query)

        for where, expression, is_range in of_ranks:
            # A rate needs two scrapes.
            eventually(functools.partial(has_data, expression, is_range), where)

    def test_names_the_rank_and_the_parameter_of_a_flipped_bit(self):
        launch = Launch(self, 4, *self.STEPS, "--wait", "on", "--linger", "300", "--http", "127.0.0.1:0", "--grpc", "off",
                        "--targets", self.targets, "--run-dir", self.run_dir)
        cluster, above = self.servers()
        weights = launch.weights()
        self.assertEqual(weights[0], weights[1])
        self.assertEqual(weights[0], weights[3])
        self.assertNotEqual(weights[0], weights[2])
        parameter = launch[2].wait_for(r"^flipped a bit of (\S+) of rank 2 after step 30$")[1]

        # One server for all ranks, at the port that its file names.
        address = launch[0].wait_for(r"^metrics http://(\S+)/metrics$")[1]
        with open(self.targets, encoding="utf-8") as file:
            self.assertEqual(json.load(file), [{"targets": [address]}])
        self.assertEqual([server_of(rank.process.pid) is not None for rank in launch.ranks], [True, False, False, False])

        def firing():
            return [alert for alert in above.get("alerts")["alerts"]
                    if alert["labels"]["alertname"] == "PtqwatchReplicasDiverged" and alert["state"] == "firing"]

        # Until the reports of all ranks are read, the minority is not known.
        says = f"At step 40 the ranks differ, first in {parameter}; rank 2 is in the minority."
        eventually(lambda: [says in alert["annotations"]["description"] for alert in firing()] == [True], lambda: f"{says} {firing()}")
        alert, = firing()
        self.assertEqual((alert["labels"]["instance"], alert["labels"]["job"], alert["labels"]["severity"]), (address, "ptqwatch", "page"))
        above.wait(f'ptqwatch_snapshot_step{{instance="{address}"}} == 60')
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
            self.assertIn("\nptqwatch_replicas_diverged 1\n", page.read().decode())
        self.assert_panels_show_ranks(cluster, address)

        launch.send(signal.SIGTERM)
        codes, errors = launch.finish()
        self.assertEqual(codes, [128 + signal.SIGTERM] * 4, errors)
        eventually(lambda: not os.path.exists(self.targets), "the server has removed the file")
        eventually(lambda: cluster.query('up{job="ptqwatch"}') == [], "Prometheus has forgotten the target")

        self.assertRegex(ptqwatch("status", self.run_dir),
                         rf"\nreplicas +differ since step 40, .* rank 2 unlike most, first in '{parameter}'\n")
        event, = [line for line in ptqwatch("watch", self.run_dir, "--json").splitlines() if "replicas_diverged" in line]
        self.assertIn("rank 2 ", event)
        self.assertIn(parameter, event)

        alone = Launch(self, 4, *self.STEPS, "--monitor", "off")
        self.assertEqual(alone.weights(), weights, "training ends in the same bits without a monitor")
        self.assertEqual(alone.finish()[0], [0] * 4)


class Faults(RankRuns):
    def flags(self, checkpoints):
        return ["--every", "10", "--checkpoints", os.path.join(self.folder, checkpoints), "--checkpoint-every", "30", "--timeout", "12"]

    def interrupted(self, *flags):
        """Four ranks, one with little time: one stands still for a while, and one is killed. They train until then."""
        launch = Launch(self, 4, *flags, "--steps", "1000000", niced=[2])
        launch[0].wait_for(r"^snapshot step 20 ")
        launch.send(signal.SIGSTOP, 1)
        self.assertIn("step", ptqwatch("status", self.run_dir))  # readers do not wait for it
        launch.send(signal.SIGCONT, 1)
        launch[0].wait_for(r"^snapshot step 70 ")
        launch.send(signal.SIGKILL, 3)
        codes, errors = launch.finish()
        self.assertEqual(codes, [1, 1, 1, -signal.SIGKILL])
        for error in errors[:3]:
            self.assertIn("rank 3 has sent nothing for 12 s", error)
        # Rank 0 saves a step before it is measured.
        measured = journal(os.path.join(self.run_dir, "rank-0003"))[0][-1]["step"]
        for saved in pathlib.Path(self.folder, "watched").iterdir():
            if int(re.search(r"\d+", saved.name)[0]) > measured:
                saved.unlink()

    def follow(self):
        """A reader that is there from the first report to the last: `ptqwatch watch`."""
        eventually(lambda: os.path.exists(os.path.join(self.run_dir, "rank-0000", "journal.jsonl")))
        return self.enterContext(Trainer(PTQWATCH, "watch", self.run_dir, "--json", "--keep", short=False))

    def test_four_ranks_then_three_then_five(self):
        watched = ["--wait", "on", *UNSERVED, "--run-dir", self.run_dir, *self.flags("watched")]
        reader = []
        begin = threading.Thread(target=lambda: reader.append(self.follow()))
        begin.start()
        self.interrupted(*watched)
        begin.join()
        continued = max(int(re.search(r"\d+", name)[0]) for name in os.listdir(os.path.join(self.folder, "watched")))
        self.assertGreaterEqual(continued, 60)
        before, end = continued + 30, continued + 60
        three = Launch(self, 3, *watched, "--steps", str(before))
        self.assertEqual(int(three[0].wait_for(r"^continues after step (\d+)$")[1]), continued)
        self.assertEqual(len(set(three.weights())), 1)
        self.assertEqual(three.finish()[0], [0] * 3)
        weights = self.trains(5, *watched, "--steps", str(end))

        history = self.history()
        got = [(report["attempt"], report["step"]) for report in history]
        self.assertEqual(len(got), len(set(got)), "no report is doubled")
        self.assertEqual(got, sorted(got))
        whole = [report for report in history if report["attempt"] > 1 or report["step"] <= continued]
        launches = [(1, 4, range(10, continued + 1, 10)), (2, 3, range(continued + 10, before + 1, 10)), (3, 5, range(before + 10, end + 1, 10))]
        self.assertEqual([(report["attempt"], report["ranks"], report["step"]) for report in whole],
                         [(attempt, ranks, step) for attempt, ranks, steps in launches for step in steps], "and none is lost")
        for report in whole:
            self.assertEqual({entry["status"] for entry in report["quantization"]}, {"ok"}, report["step"])
            self.assertNotIn("rank", report)
        for report in history:
            for entry in report["quantization"]:
                if entry["status"] == "other_rank":
                    self.assertRegex(entry["status_detail"], r"rank \d")
        self.assertRegex(ptqwatch("status", self.run_dir), rf"\nreplicas +equal at step {end}\n")

        # A reader that was there all the time has the same, each once.
        reader = reader[0]
        reader.wait_for(rf'"step":{end}\b')
        reader.process.send_signal(signal.SIGINT)
        live = [(report["attempt"], report["step"]) for report in reports(reader.finish()[1])]
        self.assertEqual(len(live), len(set(live)))
        self.assertEqual(sorted(set(live)), sorted(set(got)))

        alone = ["--monitor", "off", *self.flags("alone")]
        self.trains(4, *alone, "--steps", str(continued))
        self.trains(3, *alone, "--steps", str(before))
        self.assertEqual(self.trains(5, *alone, "--steps", str(end)), weights, "training ends in the same bits without a monitor")


class Slow(RankRuns):
    def test_a_rank_that_has_a_fifth_of_its_time(self):
        launch = Launch(self, 4, "--steps", "600", "--every", "20", *UNSERVED, "--run-dir", self.run_dir)
        over = threading.Event()

        def hold():
            while not over.wait(0.01):
                launch.send(signal.SIGSTOP, 1)
                time.sleep(0.04)
                launch.send(signal.SIGCONT, 1)
        holder = threading.Thread(target=hold)
        holder.start()
        try:
            weights = launch.weights()
        finally:
            over.set()
            holder.join()
        codes, errors = launch.finish()
        self.assertEqual(codes, [0] * 4, errors)
        self.assertEqual(len(set(weights)), 1)
        history = self.history()
        steps = [report["step"] for report in history]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(steps[-1], 600)
        missing = [entry["status_detail"] for report in history for entry in report["quantization"] if entry["status"] == "other_rank"]
        for detail in missing:
            self.assertRegex(detail, r"rank \d")
        print(f"{len(history)} reports of 30, {len(missing)} measurements missing")


class Sharded(RankRuns):
    FLAGS = ["--steps", "60", "--every", "20", *UNSERVED]

    def measured(self, run_dir):
        """The reports by step, without what depends on time and on the number of measuring processes."""
        found = {}
        for report in reports(ptqwatch("history", run_dir, "--json")):
            for name in ("cost", "plan", "snapshot_time_unix_seconds", "run_id", "ranks", "parameter_digests", "sequence", "trigger"):
                report.pop(name, None)
            found[report["step"]] = report
        return found

    def test_reports_and_weights_are_those_of_equal_copies(self):
        copies = os.path.join(self.folder, "copies")
        flags = ["--steps", "60", "--every", "60", *UNSERVED]
        weights = self.trains(4, *flags, "--run-dir", copies)
        self.assertEqual(self.trains(4, *flags, "--sharded", "--run-dir", self.run_dir), weights)
        self.assertEqual(self.trains(4, *flags, "--sharded", "--monitor", "off"), weights)
        sharded = self.measured(self.run_dir)
        self.assertIsNotNone(sharded[60]["curvature"]["top_eigenvalue"])
        self.assertEqual(sharded, self.measured(copies))
        self.assertFalse(os.path.exists(os.path.join(self.run_dir, "shards")))
        hosts = os.path.join(self.folder, "hosts")
        self.assertEqual(self.trains(4, *flags, "--sharded", "--run-dir", hosts, hosts=2), weights)
        self.assertEqual(self.measured(hosts), sharded)
        self.assertFalse(os.path.exists(os.path.join(hosts, "shards")))

    def test_a_rank_that_stands_still_and_one_that_is_killed(self):
        launch = Launch(self, 3, *self.FLAGS[2:], "--steps", "1000000", "--sharded", "--timeout", "5", "--run-dir", self.run_dir)
        measured = launch[0].wait_for(r"^snapshot step (\d+) ")
        launch.send(signal.SIGSTOP, 1)
        self.assertIn("step", ptqwatch("status", self.run_dir))
        launch.send(signal.SIGCONT, 1)
        launch[0].wait_for(rf"^snapshot step (?!{measured[1]} )")
        launch.send(signal.SIGKILL, 2)
        codes, errors = launch.finish()
        self.assertEqual(codes, [1, 1, -signal.SIGKILL])
        for error in errors[:2]:
            self.assertRegex(error, r"rank \d has sent nothing for 5 s")
        # What the killed rank has left does not disturb the next launch.
        self.trains(3, *self.FLAGS[2:], "--steps", "40", "--sharded", "--run-dir", self.run_dir)
        self.assertEqual(self.history()[-1]["step"], 40)

    def test_a_rank_that_differs_is_named_by_all(self):
        first = Launch(self, 2, *self.FLAGS, "--sharded", "--run-dir", self.run_dir, flags_of={1: ["--every", "10"]})
        for rank, (code, error) in enumerate(zip(*first.finish())):
            self.assertEqual(code, 0, error)
            self.assertIn("the ranks have different options: schedule of rank 0: every 20,", error)
            self.assertEqual("rank 0 does not share its part of the model: " in error, rank == 1, error)

    def test_bad_flags(self):
        for expected, flags, message in ((0, (), "nothing is measured: run_dir is empty: the model is sharded"),
                                         (2, ("--checkpoints", "x"), "--checkpoints excludes --sharded"),
                                         (2, ("--wait", "on"), "--sharded: --wait on would make the ranks wait at different steps"),
                                         (2, ("--flip-step", "3"), "--flip-step excludes --sharded"),
                                         (2, ("--optimizer", "muon"), "--sharded: --optimizer muon needs whole matrices")):
            code, _, error = Launch(self, 1, *self.FLAGS, "--sharded", *flags)[0].finish(timeout=60)
            self.assertEqual(code, expected, error)
            self.assertIn(message, error)


if __name__ == "__main__":
    RANKS, PTQWATCH = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
