"""A report as numbers for a trainer's own log."""

from ptqwatch import _native

_ALARMS = ("decay_degradation", "spike")


def scalars(report):
    """The main numbers of a report (Monitor.latest) under "ptqwatch/...": those that were measured. The verdict is a string."""
    curvature = report.get("curvature") or {}
    state = report["verdict"]["state"]
    values = {
        "step": report["step"],
        "probe_loss_nats": report.get("probe_loss_nats"),
        "top_eigenvalue": curvature.get("top_eigenvalue"),
        "trace": curvature.get("trace"),
        "verdict": state,
        "alarm": int(state in _ALARMS),
    }
    for row in report["quantization"]:
        name = _native.short_name(row["method"], row["bits"], row.get("format", ""))
        values.setdefault(f"error_ratio_{name}", row.get("error_ratio"))  # as on /metrics, the first of a name
    return {f"ptqwatch/{name}": value for name, value in values.items() if value is not None}


class NewReports:
    """The scalars of each report of a monitor, once."""

    def __init__(self, monitor):
        self._monitor = monitor
        self._taken = monitor.latest()

    def take(self):
        """The scalars of the newest report, or None if there is no new one."""
        report = self._monitor.latest()
        if report is None or report is self._taken:
            return None
        self._taken = report
        return scalars(report)
