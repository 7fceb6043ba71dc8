"""Building blocks of the dashboards: queries, panels, variables and annotations, in Grafana's classic JSON model."""

import itertools

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Series of a trainer's own exporter have no label run, so the variable matches .* instead of .+.
HERE_AND_NOW = 'job=~"$job", instance=~"$instance", run=~"$run"'
ONE_RUN = "on (job, instance, run)"
SELECTED = ('method=~"$method"', 'bits=~"$bits"', 'format=~"$format"')
QUANTIZER = "{{method}} {{bits}} bits {{format}} {{run}}"
WIDTH = 24

VERDICTS = [("unknown", "text"), ("warming_up", "text"), ("healthy", "green"), ("drifting", "blue"),
            ("decay_degradation", "orange"),
            ("spike", "red"), ("recovering", "yellow"), ("unclear", "purple")]
PHASES = [("unknown", "text"), ("warmup", "blue"), ("stable", "green"), ("decay", "orange"), ("slow_decay", "yellow"),
          ("rewarm", "purple")]
REPLICAS = [("equal", "green"), ("differ", "red")]
HEALTHS = [("starting", "blue"), ("ok", "green"), ("degraded", "orange"), ("stopped", "text"), ("inert", "red"), ("silent", "red")]


def m(name, *matchers):
    """A metric of the selected runs."""
    return f"ptqwatch_{name}{{{', '.join([HERE_AND_NOW, *matchers])}}}"


def watched(expr):
    """Of an expression with one value per quantizer, the value of the verdict's quantizer."""
    return f"{expr} and on (job, instance, run, method, bits, format) {m('verdict_quantizer_info')}"


def code(name, label, states):
    """The index of the state whose series is 1, for panels that map numbers to texts."""
    terms = [f"""{position} * {m(name, f'{label}="{state}"')}""" for position, (state, _) in enumerate(states)]
    return f"sum without ({label}) ({' or '.join(terms)})"


def mapping(states):
    return [{"type": "value", "options": {str(i): {"text": state.replace("_", " "), "color": color, "index": i}
                                          for i, (state, color) in enumerate(states)}}]


def steps(*levels):
    """Thresholds: (None, color), (value, color), ..."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in levels]}


def query(expr, legend="", instant=False, table=False):
    return {"expr": expr, "legendFormat": legend, "instant": instant, "range": not instant, "format": "table"
            if table else "time_series"}


def panel(kind, title, description, unit, queries, width, height, options, **defaults):
    custom = defaults.pop("custom", {})
    overrides = defaults.pop("overrides", [])
    targets = [{"refId": chr(ord("A") + i), "datasource": SOURCE, "editorMode": "code", **one} for i, one in enumerate(queries)]
    return {"type": kind, "title": title, "description": description, "datasource": SOURCE, "targets": targets,
            "gridPos": {"x": 0, "y": 0, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": unit, "custom": custom, **defaults}, "overrides": overrides}, "options": options}


def lines(title, description, unit, *queries, width=12, stack=False, log=False, points=False, **defaults):
    custom = {"drawStyle": "line", "lineWidth": 1 if stack else 2, "fillOpacity": 30 if stack else 0, "spanNulls": True,
              "showPoints": "always" if points else "auto", "pointSize": 4,
              "stacking": {"mode": "normal" if stack else "none", "group": "A"},
              "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"}}
    return panel("timeseries", title, description, unit, queries, width, 8,
                 {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                  "tooltip": {"mode": "multi", "sort": "desc"}}, custom=custom, **defaults)


def number(title, description, unit, expr, legend="{{run}}", width=4, thresholds=None, **defaults):
    return panel("stat", title, description, unit, [query(expr, legend, instant=True)], width, 4,
                 {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
                  "graphMode": "none",
                  "justifyMode": "auto", "orientation": "auto", "textMode": "auto"},
                 thresholds=thresholds or steps((None, "text")), color={"mode": "thresholds"}, noValue="none", **defaults)


def states(title, description, name, label, known, width=12, height=5):
    return panel("state-timeline", title, description, "none", [query(code(name, label, known), "{{run}} {{instance}}")], width,
                 height,
                 {"mergeValues": True, "showValue": "auto", "rowHeight": 0.9, "alignValue": "left",
                  "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
                  "tooltip": {"mode": "single", "sort": "none"}},
                 mappings=mapping(known), color={"mode": "thresholds"}, thresholds=steps((None, "text")),
                 custom={"fillOpacity": 70, "lineWidth": 0})


def bars(title, description, unit, expr, legend, width=12):
    return panel("bargauge", title, description, unit, [query(expr, legend, instant=True)], width, 10,
                 {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "displayMode": "basic",
                  "orientation": "horizontal", "valueMode": "color", "showUnfilled": True, "minVizHeight": 10, "minVizWidth": 0},
                 color={"mode": "continuous-GrYlRd"}, thresholds=steps((None, "green")), min=0)


def table(title, description, columns, width=24, height=9, keep=("run", "instance"), sort=0):
    """columns: (name, expr, unit, mappings). One row for each set of labels."""
    queries = [query(expr, "", instant=True, table=True) for _, expr, _, _ in columns]
    overrides = []
    for i, (name, _, unit, mapped) in enumerate(columns):
        properties = [{"id": "displayName", "value": name}, {"id": "unit", "value": unit}]
        if mapped:
            properties += [{"id": "mappings", "value": mapped}, {"id": "custom.cellOptions", "value": {"type": "color-text"}}]
        overrides.append({"matcher": {"id": "byName", "options": f"Value #{chr(ord('A') + i)}"}, "properties": properties})
    made = panel("table", title, description, "short", queries, width, height,
                 {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": columns[sort][0], "desc": True}],
                  "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}},
                 custom={"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}, overrides=overrides)
    made["transformations"] = [{"id": "merge", "options": {}}, {"id": "filterFieldsByName", "options": {
        "include": {"names": [*keep, *(f"Value #{chr(ord('A') + i)}" for i in range(len(columns)))]}}}]
    return made


def row(title, *folded):
    """The title of the panels that follow. With `folded` panels, a row of these that opens by a click."""
    return {"type": "row", "title": title, "collapsed": bool(folded), "panels": list(folded),
            "gridPos": {"x": 0, "y": 0, "w": WIDTH, "h": 1}}


def laid_out(panels, numbers, y=0):
    """Fills rows of the grid from the left. Folded panels take no place until their row is opened."""
    x = height = 0
    for one in panels:
        place = one["gridPos"]
        if x + place["w"] > WIDTH:
            x, y, height = 0, y + height, 0
        place.update(x=x, y=y)
        one["id"] = next(numbers)
        laid_out(one.get("panels", []), numbers, y + place["h"])
        x, height = x + place["w"], max(height, place["h"])
    return panels


def variable(name, label, of, matchers="", *, multi, every):
    return {"type": "query", "name": name, "label": label, "description": "", "datasource": SOURCE, "hide": 0,
            "query": {"query": f"label_values({of}{matchers}, {name})", "refId": name},
            "refresh": 2, "sort": 1, "regex": "", "multi": multi, "includeAll": True, "allValue": every, "skipUrlSync": False,
            "current": {"selected": True, "text": ["All"] if multi else "All", "value": ["$__all"] if multi else "$__all"},
            "options": []}


def variables(many_runs, extra):
    datasource = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "hide": 0,
                  "refresh": 1,
                  "regex": "", "multi": False, "includeAll": False, "skipUrlSync": False, "current": {}, "options": []}
    found = "ptqwatch_build_info"
    return [datasource,
            variable("job", "job", found, multi=True, every=".+"),
            variable("instance", "instance", found, '{job=~"$job"}', multi=True, every=".+"),
            variable("run", "run", found, '{job=~"$job", instance=~"$instance"}', multi=many_runs, every=".*"), *extra]


def annotation(name, color, expr, title, text, shown=True):
    return {"name": name, "datasource": SOURCE, "enable": shown, "hide": False, "iconColor": color, "expr": expr,
            "titleFormat": title,
            "textFormat": text, "step": "15s", "useValueForTime": False, "target": {"refId": name, "expr": expr}}


def annotations():
    alerts = 'ALERTS{alertname=~"Ptqwatch.+", alertstate="firing", job=~"$job", instance=~"$instance", run=~"$run|"}'
    phases = m("lr_phase", 'phase=~"warmup|decay|slow_decay|rewarm"')
    # The onset becomes known only later, so the query takes it from the end of the range. The snapshot may lie between two scrapes.
    known = f">= {ONE_RUN} {m('verdict_onset_step')} @ end()"
    onset = f"{m('snapshot_step')} {known} unless {m('snapshot_step')} offset $__rate_interval {known}"
    built_in = {"builtIn": 1, "name": "Annotations & Alerts", "type": "dashboard",
                "datasource": {"type": "grafana", "uid": "-- Grafana --"},
                "enable": True, "hide": True, "iconColor": "rgba(0, 211, 255, 1)"}
    return [built_in,
            annotation("Phases", "blue", f"{phases} == 1", "{{phase}}", "learning rate of {{run}}"),
            annotation("Alerts", "red", alerts, "{{alertname}}", "{{severity}} {{run}} {{instance}}"),
            annotation("Onset", "orange", onset, "onset", "first snapshot of the rise, {{run}}")]


NAMES = {"ptqwatch-overview": "Overview", "ptqwatch-layers": "Layers", "ptqwatch-health": "Monitor",
         "ptqwatch-compare": "Runs compared"}


def dashboard(uid, description, panels, many_runs=False, extra=()):
    links = [{"type": "link", "title": name, "url": f"/d/{other}", "icon": "dashboard", "tooltip": "", "asDropdown": False,
              "targetBlank": False, "includeVars": True, "keepTime": True, "tags": []} for other,
              name in NAMES.items() if other != uid]
    return {"id": None, "uid": uid, "title": f"ptqwatch / {NAMES[uid]}", "description": description, "tags": ["ptqwatch"],
            "schemaVersion": 39, "version": 1, "editable": False, "graphTooltip": 1, "timezone": "browser", "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"}, "timepicker": {}, "fiscalYearStartMonth": 0, "links": links,
            "templating": {"list": variables(many_runs, extra)}, "annotations": {"list": annotations()},
            "panels": laid_out(panels, itertools.count(1))}
