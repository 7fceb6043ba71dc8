#!/usr/bin/env python3
"""Tests the files under dashboards/ by themselves: dashboards_test.py [unittest arguments]"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from dashboard_files import (ALERTS, DASHBOARDS, ROOT, RULES, alert_names, expressions, filled_in, grafana, metrics, panels, read,
                             variables)
from trainer import CACHE, prometheus_program

sys.path.insert(0, os.path.join(CACHE, "python-dashboards"))
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # pylint: disable=wrong-import-position
from grafana_foundation_sdk.cog.plugins import register_default_plugins  # pylint: disable=wrong-import-position
from grafana_foundation_sdk.models.dashboard import Dashboard  # pylint: disable=wrong-import-position

UIDS = ["ptqwatch-compare", "ptqwatch-health", "ptqwatch-layers", "ptqwatch-overview"]
UNITS = {"none", "short", "percentunit", "s", "bytes", "decbytes", "sci"}
SEVERITIES = {"page", "warning", "info"}
# Names of series in an expression: metrics and recorded series of rules.yml.
NAME = re.compile(r"(?<![\w:\"])(?:ptqwatch_\w+|run:\w+:\w+)")


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def lost(before, after, path=""):
    """The paths at which `after`, which may have more, differs from `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [where for key in before
                for where in (lost(before[key], after[key], f"{path}/{key}") if key in after else [f"{path}/{key}"])]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [where for i, (one, other) in enumerate(zip(before, after)) for where in lost(one, other, f"{path}/{i}")]
    return [] if before == after else [path]


class Grafana(unittest.TestCase):
    def test_is_of_four_dashboards(self):
        self.assertEqual(sorted(grafana()), UIDS)

    def test_takes_no_flag_for_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, os.path.join(DASHBOARDS, "grafana", "generate"), "--chekc"], cwd=folder, capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, os.listdir(folder)), (1, "", []))
            self.assertIn("generate [FOLDER]", done.stderr)

    def test_loads_in_grafanas_schema(self):
        register_default_plugins()
        # Grafana's types lack the Prometheus fields of an annotation.
        unknown = re.compile(r"/id|/annotations/list/\d+/(titleFormat|textFormat|step|useValueForTime|target/(expr|refId))")
        for dashboard in grafana().values():
            # id is null in a file, and absent in the output of the types.
            loaded = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
            self.assertEqual([where for where in lost(dashboard, loaded) if not unknown.fullmatch(where)], [], dashboard["uid"])

    def test_is_a_dashboard_that_can_be_provisioned(self):
        for uid, dashboard in grafana().items():
            self.assertIsNone(dashboard["id"])
            self.assertIn(dashboard["schemaVersion"], range(36, 40))
            self.assertEqual((dashboard["editable"], dashboard["graphTooltip"], dashboard["timezone"], dashboard["tags"]),
                             (False, 1, "browser", ["ptqwatch"]))
            self.assertNotIn("__inputs", dashboard)
            self.assertEqual({link["url"] for link in dashboard["links"]}, {f"/d/{other}" for other in UIDS if other != uid})
            self.assertTrue(all(link["includeVars"] and link["keepTime"] for link in dashboard["links"]))
            self.assertEqual([one["name"] for one in dashboard["annotations"]["list"]][1:], ["Phases", "Alerts", "Onset"])
            rows = [one for one in dashboard["panels"] if one["type"] == "row"]
            ids = [panel["id"] for panel in (*rows, *panels(dashboard))]
            self.assertEqual(len(ids), len(set(ids)))
            for row in rows:
                self.assertEqual(row["collapsed"], row["panels"] != [], row["title"])
                self.assertTrue(all(panel["gridPos"]["y"] > row["gridPos"]["y"] for panel in row["panels"]), row["title"])

    def test_has_the_variables_that_every_query_is_limited_to(self):
        for uid, dashboard in grafana().items():
            known = {one["name"]: one for one in dashboard["templating"]["list"]}
            self.assertEqual(list(known)[:4], ["datasource", "job", "instance", "run"])
            self.assertEqual((known["datasource"]["type"], known["datasource"]["query"], known["datasource"]["label"]),
                             ("datasource", "prometheus", "Data source"))
            for name, every in (("job", ".+"), ("instance", ".+"), ("run", ".*")):
                one = known[name]
                self.assertEqual((one["label"], one["allValue"], one["includeAll"], one["refresh"]), (name, every, True, 2))
                self.assertTrue(one["multi"] or name == "run")
            for one in list(known.values())[1:]:
                self.assertEqual(one["datasource"], {"type": "prometheus", "uid": "${datasource}"})
            for where, expression, _ in expressions(dashboard):
                for selector in re.findall(r"(?:ptqwatch_\w+|ALERTS)(\{[^}]*\})?", expression):
                    for matcher in ('job=~"$job"', 'instance=~"$instance"', 'run=~"$run'):
                        self.assertIn(matcher, selector, f"{where}: {expression}")
            self.assertTrue(known["run"]["multi"] or uid != "ptqwatch-compare")

    def test_says_what_a_panel_shows_and_in_which_unit(self):
        for uid, dashboard in grafana().items():
            titles = [panel["title"] for panel in panels(dashboard)]
            for panel in panels(dashboard):
                where = f"{uid}: {panel['title']}"
                self.assertTrue(panel["title"] and panel["description"].endswith("."), where)
                units = [panel["fieldConfig"]["defaults"]["unit"]] + [
                    one["value"] for override in panel["fieldConfig"]["overrides"] for one in override["properties"]
                    if one["id"] == "unit"]
                self.assertLessEqual(set(units), UNITS, where)
                self.assertEqual(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"}, where)
                self.assertTrue(panel["targets"], where)
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], panel["datasource"], where)
                self.assertLessEqual(panel["gridPos"]["x"] + panel["gridPos"]["w"], 24, where)
            self.assertTrue(titles, uid)

    def test_asks_for_metrics_that_exist_and_for_counters_as_rates(self):
        known = metrics()
        for dashboard in grafana().values():
            for where, expression, _ in expressions(dashboard):
                names = NAME.findall(expression)
                for name in names:
                    histogram = re.sub(r"_(bucket|sum|count)$", "", name)
                    self.assertTrue(name in known or known.get(histogram) == "histogram", f"{where}: {name}")
                    if known.get(name) == "counter" or known.get(histogram) == "histogram":
                        rate = rf"sum by \([^)]*\) \((rate|increase)\({name}{{[^}}]*}}\[\$__(rate_interval|range)\]"
                        self.assertRegex(expression, rate, where)
                for window in re.findall(r"(?<=\[)[^\]]*(?=\])", expression):
                    self.assertIn(window, ("$__rate_interval", "$__range"), where)
            for _, selector, _ in variables(dashboard):
                self.assertIn(selector.split("{")[0], known)

    def test_shows_every_metric_but_these(self):
        shown = {re.sub(r"_bucket$", "", name) for dashboard in grafana().values() for _, expression, _ in expressions(dashboard)
                 for name in NAME.findall(expression)}
        self.assertEqual(set(metrics()) - shown, {
            # For alerts.
            "ptqwatch_status_timestamp_seconds", "ptqwatch_server_restarts_total",
            # Beside a panel's numbers, for who asks further.
            "ptqwatch_probe_loss_stderr_nats", "ptqwatch_hessian_trace_batch_stderr", "ptqwatch_verdict_severity_ratio",
            "ptqwatch_averaged_snapshots", "ptqwatch_quantization_top_eigenvector_alignment_ratio", "ptqwatch_routing_change_ratio",
            # Off unless an option, a closure or a command asks for them.
            "ptqwatch_hessian_bottom_eigenvalue", "ptqwatch_slice_progress_ratio", "ptqwatch_cooldown_progress_ratio",
            "ptqwatch_probe_accuracy_ratio", "ptqwatch_quantized_accuracy_ratio", "ptqwatch_accuracy_degradation_ratio",
            "ptqwatch_task_value", "ptqwatch_pooled_error_ratio", "ptqwatch_pooled_error_ratio_stderr",
            "ptqwatch_predicted_end_loss_nats", "ptqwatch_predicted_end_trace", "ptqwatch_predicted_end_step"})

    def test_every_expression_is_valid(self):
        rules = [{"record": "one", "expr": filled_in(expression, job=".+", instance=".+", run=".*", method=".+", bits=".+", format=".+")}
                 for dashboard in grafana().values() for _, expression, _ in expressions(dashboard)]
        self.assertGreater(len(rules), 100)
        with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
            # JSON is YAML. Each rule gets its own group, because a rule may occur twice.
            json.dump({"groups": [{"name": str(i), "rules": [rule]} for i, rule in enumerate(rules)]}, file)
            file.flush()
            code, out = run(prometheus_program("promtool"), "check", "rules", file.name)
            self.assertEqual(code, 0, out)


class Prometheus(unittest.TestCase):
    def test_rules_and_configuration_are_clean(self):
        code, out = run(prometheus_program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES, ALERTS)
        self.assertEqual(code, 0, out)
        for name in ("prometheus.yml", "federation.yml"):
            code, out = run(prometheus_program("promtool"), "check", "config", "--lint=all", "--lint-fatal",
                            os.path.join(DASHBOARDS, "prometheus", name))
            self.assertEqual(code, 0, out)

    def test_rules_name_what_exists(self):
        recorded = set(re.findall(r"- record: (\S+)", read(RULES)))
        for path in (RULES, ALERTS):
            text = re.sub(r"(?m)^ *#.*$|name: \S+|/\w+\.md", "", read(path))
            for name in NAME.findall(text):
                histogram = metrics().get(re.sub(r"_(bucket|sum|count)$", "", name)) == "histogram"
                self.assertTrue(histogram or name in recorded or name in metrics(), f"{path}: {name}")
        self.assertTrue(all(re.fullmatch(r"run:ptqwatch_[a-z_]+:\w+", name) for name in recorded), recorded)

    def test_alerts_say_what_to_do(self):
        alerts = re.split(r"(?m)^      - alert: ", read(ALERTS))[1:]
        self.assertEqual({alert.splitlines()[0] for alert in alerts}, set(alert_names()))
        for alert in alerts:
            name = alert.splitlines()[0]
            self.assertIn(re.search(r"severity: (\w+)", alert)[1], SEVERITIES)
            for part in ("summary: ", "description: ", f"runbook_url: dashboards/runbooks/{name}.md"):
                self.assertIn(part, alert, name)
        runbooks = {os.path.basename(path)[:-3] for path in glob.glob(os.path.join(DASHBOARDS, "runbooks", "Ptqwatch*.md"))}
        self.assertEqual(runbooks, set(alert_names()))
        for name in runbooks:
            text = read(DASHBOARDS, "runbooks", f"{name}.md")
            for heading in (f"# {name}\n", "\n## What it means\n", "\n## How to confirm\n", "\n## What to do\n"):
                self.assertIn(heading, text, name)

    def test_unit_tests_of_the_alerts_pass(self):
        paths = sorted(glob.glob(os.path.join(DASHBOARDS, "prometheus", "tests", "*.yml")))
        self.assertEqual({os.path.basename(path)[:-4] for path in paths}, set(alert_names()))
        for path in paths:
            names = re.findall(r"(?m)^  - name: (fires|must not|recovers) ", read(path))
            self.assertEqual(names, ["fires", "must not", "recovers"], path)
        code, out = run(prometheus_program("promtool"), "test", "rules", *paths)
        self.assertEqual(code, 0, out)


class Alertmanager(unittest.TestCase):
    CONFIG = os.path.join(DASHBOARDS, "alertmanager", "alertmanager.yml")

    def test_configuration_is_clean(self):
        code, out = run(prometheus_program("amtool"), "check-config", self.CONFIG)
        self.assertEqual(code, 0, out)

    def test_every_severity_has_its_receiver(self):
        for severity in SEVERITIES:
            code, out = run(prometheus_program("amtool"), "config", "routes", "test", f"--config.file={self.CONFIG}",
                            f"--verify.receivers={severity}", "alertname=PtqwatchMonitorStale", "job=ptqwatch",
                            f"severity={severity}")
            self.assertEqual(code, 0, out)

    def test_inhibits_alerts_that_exist_within_a_run(self):
        text = read(self.CONFIG)
        rules = re.split(r"(?m)^  - source_matchers", text)[1:]
        self.assertTrue(all("equal: [job, instance" in rule for rule in rules))
        for pattern in re.findall(r'alertname =~? "([^"]+)"', text):
            for one in pattern.split("|"):
                self.assertTrue(any(re.fullmatch(one, name) for name in alert_names()), one)


class Files(unittest.TestCase):
    def test_other_files_name_the_same_things(self):
        self.assertIn("uid: ptqwatch-prometheus", read(DASHBOARDS, "grafana", "provisioning", "datasources", "ptqwatch.yml"))
        provider = read(DASHBOARDS, "grafana", "provisioning", "dashboards", "ptqwatch.yml")
        for line in ("apiVersion: 1", "allowUiUpdates: false", "disableDeletion: true"):
            self.assertIn(line, provider)
        compose = read(DASHBOARDS, "compose.yml")
        for path in re.findall(r"- \./([\w/.-]+):", compose):
            self.assertTrue(os.path.exists(os.path.join(DASHBOARDS, path)), path)
        self.assertTrue(os.access(os.path.join(ROOT, "dashboards", "stack"), os.X_OK))


if __name__ == "__main__":
    unittest.main()
