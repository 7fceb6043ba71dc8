"""The files of a study."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import time


class CannotUse(Exception):
    """The directory cannot be used; the message says why."""


def write(path, content):
    """Writes the whole file or nothing."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def sharpness_along(entry):
    """The critical sharpness along a quantization error: the second derivative of the parabola through the losses at 0, half and all of the error, per
    squared norm. None if not measured."""
    change = {point["scale"]: point.get("delta_nats") for point in entry.get("loss_along", ())}
    half, whole, norm = change.get(0.5), change.get(1), entry.get("displacement_norm")
    return 4 * (whole - 2 * half) / norm**2 if half is not None and whole is not None and norm else None


# What a study keeps of an expert's matrix.
EXPERT = ("name", "tokens", "output_error_ratio", "gradient_term_nats", "curvature_term_nats")


def experts_of(entry, names):
    """The columns EXPERT of the experts that have rows of their own; `names` are the report's layer names. docs/run_directory.md has the format."""
    kept = {}
    for key, column in entry.get("layers_columns", {}).items():
        if isinstance(column, str) and column in kept:
            column = kept[column]
        kept[key] = column if isinstance(column, list) else range(column) if key == "name" else [column] * len(kept["name"])
    rows = [i for i, name in enumerate(kept.get("name", ())) if ".experts." in names[name] and "*" not in names[name]]
    return {key: [names[kept[key][i]] if key == "name" else kept[key][i] for i in rows] for key in EXPERT if key in kept} if rows else {}


def point_of(report):
    """The part of a report that a study uses. None means not measured."""
    point = {"step": report["step"], "learning_rate": report["learning_rate"], "loss_nats": report.get("probe_loss_nats")}
    for entry in sorted(report.get("quantization", ()), key=lambda entry: (entry["method"], entry["bits"])):
        form = entry.get("format", "int")
        name = f"{entry['method']}{entry['bits'] if form.startswith('int') else ''}" + (f"-{form}" if form != "int" else "")
        point[name] = {key: entry.get(key) for key in ("loss_nats", "error_ratio", "error_ratio_stderr", "displacement_norm",
                                                       "curvature_along_error", "predicted_delta_nats", "curvature_batch_delta_nats",
                                                       "routing_change_ratio", "fallback_tokens_ratio")}
        point[name]["withheld"] = bool(entry.get("prediction_detail"))
        if experts := experts_of(entry, report.get("layer_names", ())):
            point[name]["experts"] = experts
        point[name]["critical_sharpness"] = sharpness_along(entry)
    curvature = report.get("curvature", {})
    return point | {key: curvature.get(key) for key in ("trace", "weighted_trace", "top_eigenvalue")} | {
        "noise_nats": report.get("noise", {}).get("delta_nats")}


class StudyDir:
    """The directory of a study:
      study.json         its settings
      text               the training text
      legs/ID/           a finished leg: run/ (journal), sharpness.jsonl, state.safetensors, weights-STEP.safetensors, seconds
      legs/ID.part/      an unfinished leg
      logs/ID.log        the output of a leg's process
      results.json, results.md
    Only files that have been renamed into place are read, so a study may be killed at any moment."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.lock = None

    def take(self, settings, text):
        """Creates the directory or continues a study with the same settings, and removes unfinished legs. Refuses other studies there while this
        process or one of its legs is alive. Raises CannotUse if the directory cannot be written, was made with other settings, or holds
        something else."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            is_study = (self.root / "study.json").exists()
            for path in () if is_study else self.root.iterdir():
                if path.name not in ("lock", "text") and path.suffix != ".new":
                    raise CannotUse(f"is not a study's directory: it contains {path.name}")
            self.take_lock()
            if is_study:
                self.compare(settings)
            else:
                write(self.root / "text", text)
                write(self.root / "study.json", json.dumps(settings, indent=1).encode() + b"\n")
            for folder in ("legs", "logs"):
                (self.root / folder).mkdir(exist_ok=True)
            for part in (self.root / "legs").glob("*.part"):
                shutil.rmtree(part)
        except OSError as error:
            raise CannotUse(error.strerror) from error

    def take_lock(self):
        # Legs hold the lock too. If a study is killed, its legs die at once and release it.
        self.lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.1)
        raise CannotUse("another study is running there")

    def compare(self, settings):
        try:
            kept = json.loads((self.root / "study.json").read_text())
            names = {**kept, **settings}
        except (ValueError, TypeError):
            raise CannotUse("study.json cannot be read") from None
        text = lambda values, name: json.dumps(values[name]) if name in values else "absent"
        differences = [f"{name} is {text(kept, name)}, not {text(settings, name)}" for name in names if text(kept, name) != text(settings, name)]
        if differences:
            raise CannotUse("was made with other settings: " + ", ".join(differences))

    def leg(self, name):
        return self.root / "legs" / name

    def part(self, name):
        return self.root / "legs" / f"{name}.part"

    def log(self, name):
        return self.root / "logs" / f"{name}.log"

    def is_finished(self, name):
        return self.leg(name).exists()

    def begin(self, leg):
        """Creates a leg's directory. The run's journal so far, and what was measured beside it, become the beginning of the leg's."""
        self.part(leg.id).mkdir()
        if leg.parent:
            shutil.copy(self.leg(leg.parent) / "sharpness.jsonl", self.part(leg.id))
            shutil.copytree(self.leg(leg.parent) / "run", self.part(leg.id) / "run", ignore=shutil.ignore_patterns("lock", "status.json"))

    def finish(self, name, seconds):
        """Renames a finished leg into place once its content is on disk."""
        part = self.part(name)
        (part / "seconds").write_text(f"{seconds:g}\n")
        for path in [*part.rglob("*"), part]:
            sync(path)
        part.rename(self.leg(name))
        sync(self.root / "legs")

    def seconds(self, name):
        """The seconds that a finished leg took; 0 if unknown."""
        with contextlib.suppress(OSError, ValueError):
            return float((self.leg(name) / "seconds").read_text())
        return 0.0

    def points(self, name):
        """The points in a finished leg's journal, oldest first."""
        run = self.leg(name) / "run"
        beside = [json.loads(line) for line in (self.leg(name) / "sharpness.jsonl").read_text().splitlines()]
        sharpness = {line["step"]: line["critical_sharpness"] for line in beside}
        points = []
        for path in [*sorted(run.glob("journal-*.jsonl")), run / "journal.jsonl"]:
            with open(path, encoding="utf-8") as lines:
                points += [point_of(line) for line in map(json.loads, lines) if "event" not in line]
        return [point | {"critical_sharpness": sharpness.get(point["step"])} for point in points]
