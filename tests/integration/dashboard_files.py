"""What the files under dashboards/ say, for the tests that check and run it."""

import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DASHBOARDS = os.path.join(ROOT, "dashboards")
RULES = os.path.join(DASHBOARDS, "prometheus", "rules.yml")
ALERTS = os.path.join(DASHBOARDS, "prometheus", "alerts.yml")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


@functools.lru_cache
def grafana():
    """The dashboards, by uid."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(DASHBOARDS, "grafana", "generate"), folder], check=True)
        made = [json.loads(read(path)) for path in sorted(glob.glob(os.path.join(folder, "*.json")))]
    return {dashboard["uid"]: dashboard for dashboard in made}


def panels(dashboard):
    """Its panels, also those in rows that are folded."""
    return [panel for one in dashboard["panels"] for panel in (one, *one.get("panels", ())) if panel["type"] != "row"]


def expressions(dashboard):
    """[(where, expression, is a range query)] of its panels and annotations."""
    found = [(f"{dashboard['uid']}: {panel['title']} {target['refId']}", target["expr"], target["range"])
             for panel in panels(dashboard) for target in panel["targets"]]
    return found + [(f"{dashboard['uid']}: annotation {one['name']}", one["expr"], True)
                    for one in dashboard["annotations"]["list"] if "expr" in one]


def variables(dashboard):
    """[(name, selector, label)] of the variables that ask Prometheus."""
    found = []
    for one in dashboard["templating"]["list"]:
        if one["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"]).groups()
            found.append((one["name"], selector, label))
    return found


def filled_in(expression, **values):
    """An expression as Grafana sends it."""
    for name, value in {"__rate_interval": "10s", "__range": "10m", **values}.items():
        expression = re.sub(rf"\${name}\b|\${{{name}}}", lambda _, value=value: value, expression)
    if "$" in expression:
        raise AssertionError(f"not every variable is known: {expression}")
    return expression


def alert_names():
    return re.findall(r"(?m)^\s*- alert: (\w+)$", read(ALERTS))


def metrics():
    """{name: type} of the metrics that docs/metrics.md lists, which a test keeps equal to the catalogue."""
    rows = re.findall(r"(?m)^\| `(ptqwatch_\w+)` \| ?(\w*) ?\|", read(ROOT, "docs", "metrics.md"))
    return {name: kind or "gauge" for name, kind in rows}
