#!/usr/bin/env python3
"""The live page and its file in a browser: page_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import copy
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import browser
from serve_test import NO_SERVERS
from trainer import Server, journal, train

CHAR_GPT, PTQWATCH = None, None
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">&amp;'"
SHOWN = "!document.getElementById('run').hidden"


def serve(*run_dirs, address="127.0.0.1:0", flags=()):
    server = Server(PTQWATCH, *run_dirs, *flags, http=address, grpc="off")
    return server.ready() if any(map(os.path.exists, run_dirs)) else server


def write_run(run_dir, reports, events=(), status=None):
    os.makedirs(run_dir)
    with open(os.path.join(run_dir, "journal.jsonl"), "w", encoding="utf-8") as lines:
        for entry in [*reports, *({"event": event} for event in events)]:
            lines.write(json.dumps(entry) + "\n")
    if status:
        shutil.copy(status, run_dir)


def numbers_of(text):
    """The numbers in a cell of the page, each with its largest rounding error: "4.68 ± 0.24 %" -> [(4.68, 0.005), (0.24, 0.005)]."""
    found = []
    for match in re.finditer(r"[−-]?[\d,]+(?:\.(\d+))?(?:e([−-]?\d+))?", text.replace("−", "-")):
        exponent = int(match[2]) if match[2] else 0
        value = float(match[0].replace(",", ""))
        found.append((value, 0.5 * 10.0 ** (exponent - len(match[1] or ""))))
    return found


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.run_dir = os.path.join(cls.folder.name, "short")
        train(CHAR_GPT, "--steps", "400", "--wait", "on", "--bits", "3,4", "--run-dir", cls.run_dir, *NO_SERVERS)
        cls.reports, cls.events, _ = journal(cls.run_dir)
        cls.status = os.path.join(cls.run_dir, "status.json")
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def quiet(self):
        self.assertEqual(self.browser.console, [])

    def assert_number(self, text, value, scale=1.0, index=0):
        shown, lost = numbers_of(text)[index]
        self.assertLessEqual(abs(shown - value * scale), lost + 1e-3 * abs(value * scale), f"{text!r} is not {value * scale}")

    def table(self, chart):
        """The rows of a chart's table, without the header."""
        self.browser.evaluate(f"document.querySelector('#chart-{chart} details').open = true")
        self.browser.until(f"document.querySelector('#chart-{chart} tbody') !== null")
        return self.browser.evaluate(f"[...document.querySelectorAll('#chart-{chart} tbody tr')].map((row) => "
                                     "[...row.children].map((cell) => cell.textContent))")

    def check_values(self, reports):
        """Every number of every chart and of the verdict matches the journal."""
        newest = reports[-1]
        label = "document.querySelector('#chart-evidence canvas').getAttribute('aria-label')"
        self.browser.until(f"{SHOWN} && {label}.length > 30")
        text = self.browser.evaluate("document.getElementById('summary').textContent")
        self.assertEqual(text, newest["verdict"]["summary"])
        watched = newest["verdict"]
        entry = next(e for e in newest["quantization"] if (e["method"], e["bits"]) == (watched["method"], watched["bits"]))
        for tile, value, scale in (("error", entry["error_ratio"], 100), ("loss", newest["probe_loss_nats"], 1),
                                   ("quantized", entry["loss_nats"], 1), ("trace", newest["curvature"]["trace"], 1),
                                   ("eigenvalue", newest["curvature"]["top_eigenvalue"], 1)):
            self.assert_number(self.browser.evaluate(f"document.querySelector('#tile-{tile} .value').textContent"), value, scale)
        columns = [(e["method"], e["bits"]) for e in newest["quantization"]]
        errors, losses, traces, rates = self.table("error"), self.table("loss"), self.table("trace"), self.table("rate")
        self.assertEqual(len(errors), len(reports))
        for i, report in enumerate(reversed(reports)):
            self.assert_number(errors[i][0], report["step"])
            self.assert_number(rates[i][2], report["learning_rate"])
            self.assert_number(losses[i][2], report["probe_loss_nats"])
            self.assert_number(traces[i][2], report["curvature"]["trace"])
            self.assert_number(traces[i][2], report["curvature"]["trace_stderr"], index=1)
            for k, key in enumerate(columns):
                entry = next(e for e in report["quantization"] if (e["method"], e["bits"]) == key)
                if "error_ratio" not in entry:
                    self.assertEqual((errors[i][2 + k], losses[i][3 + k]), ("–", "–"))
                    continue
                self.assert_number(errors[i][2 + k], entry["error_ratio"], 100)
                self.assert_number(errors[i][2 + k], entry["error_ratio_stderr"], 100, index=1)
                self.assert_number(losses[i][3 + k], entry["loss_nats"])
        rows = self.browser.evaluate("[...document.querySelectorAll('#layers tbody tr')].map((row) => row.children[0].textContent)")
        self.assertEqual(set(rows), {layer["name"] for layer in entry["layers"]} if len(entry["layers"]) <= 12 else set(rows))

    def test_shows_what_the_journal_says(self):
        with serve(self.run_dir) as server:
            self.browser.open(server.url)
            self.check_values(self.reports)
            events = self.browser.evaluate("[...document.querySelectorAll('#events li')].map((line) => line.textContent)")
            self.assertEqual(len(events), len(self.events))
            self.assertIn(self.events[-1]["message"], events[0])
            self.assertIn("short", self.browser.evaluate("document.title"))
            for request in self.browser.requests:
                self.assertTrue(request.startswith(server.url), request)
            self.quiet()

    def test_can_be_read_on_a_phone_in_the_dark_and_by_a_screen_reader(self):
        with serve(self.run_dir) as server:
            self.browser.open(server.url, 390, 844, dark=True)
            self.browser.until(SHOWN)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 390)
            self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(14, 17, 22)")
            self.browser.until("[...document.querySelectorAll('canvas')].every((chart) => "
                               "chart.getAttribute('role') === 'img' && /Newest: |No verdict/.test(chart.getAttribute('aria-label')))")
            self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('header, main, footer')].length"), 3)
            self.assertTrue(self.browser.evaluate("document.querySelector('[aria-live=polite] #summary') !== null"))
            self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('table')].filter((t) => !t.querySelector('th[scope]')).length"), 0)
            self.browser.resize(1400, 900)
            self.browser.evaluate("document.querySelector('#chart-error input').click()")
            self.browser.evaluate("(() => { const part = document.getElementById('part'); part.value = 'half'; part.dispatchEvent(new Event('change')); })()")
            self.quiet()

    def test_reads_at_a_glance_at_every_width(self):
        for layers in (8, 200, 10_000):
            reports = copy.deepcopy(self.reports)
            names = [f"model.layers.{i}.mlp.experts.gate_up_proj[{i}]" for i in range(layers)]
            for entry in reports[-1]["quantization"]:
                entry["layers"] = [{**entry["layers"][0], "name": name} for name in names]
            reports[-1]["curvature"]["layers"] = [{**reports[-1]["curvature"]["layers"][0], "name": name} for name in names]
            run_dir = self.path(f"layers-{layers}")
            write_run(run_dir, reports, self.events, self.status)
            with serve(run_dir) as server:
                for width in (1400, 1100, 800, 390):
                    self.browser.open(server.url, width, 900, before="addEventListener('DOMContentLoaded', () => { window.early = document.body.innerText; })")
                    self.browser.until(f"{SHOWN} && document.querySelector('#chart-evidence canvas').getAttribute('aria-label').length > 30")
                    self.assertNotIn("No verdict yet", self.browser.evaluate("window.early"))
                    self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                    # No scroll bar inside the page's.
                    self.assertEqual(self.browser.evaluate(
                        "[...document.querySelectorAll('main *')].filter((node) => /auto|scroll/.test(getComputedStyle(node).overflowY + "
                        "getComputedStyle(node).overflowX) && (node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight))"
                        ".map((node) => node.closest('[id]').id)"), [], (layers, width))
                    # Names break at their separators alone.
                    self.assertEqual(self.browser.evaluate(
                        "[...document.querySelectorAll('#layers tbody th')].flatMap((cell) => [...cell.childNodes]).filter((part) => "
                        "{ const range = document.createRange(); range.selectNodeContents(part); return part.data && range.getClientRects().length > 1; })"
                        ".map((part) => part.data)"), [], (layers, width))
                    self.quiet()

    def test_shows_names_as_text(self):
        reports = copy.deepcopy(self.reports)
        for report in reports:
            for entry in report["quantization"]:
                entry["layers"][0]["name"] = HOSTILE
        events = [{"kind": "alert", "severity": "warning", "step": 1, "time_unix_seconds": 1.7e9, "message": HOSTILE}]
        run_dir = self.path("hostile" + HOSTILE.replace("/", "%"))
        write_run(run_dir, reports, events, self.status)
        with serve(run_dir) as server:
            self.browser.open(server.url)
            self.check_values(reports)
            self.assertIn(HOSTILE, self.browser.evaluate("document.getElementById('layers').textContent"))
            self.assertIn(HOSTILE, self.browser.evaluate("document.getElementById('events').textContent"))
            self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
            self.assertNotEqual(self.browser.evaluate("document.title"), "taken")
            self.quiet()
        # The same as a file: a name cannot end the element that holds the data.
        page = self.path("hostile.html")
        subprocess.run([PTQWATCH, "report", run_dir, "-o", page], check=True, capture_output=True, timeout=60)
        self.browser.open("file://" + page)
        self.check_values(reports)
        self.assertIn(HOSTILE, self.browser.evaluate("document.getElementById('layers').textContent"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertEqual([url for url in self.browser.requests if not url.startswith("file://" + self.folder.name)], [])
        self.quiet()

    def test_shows_a_value_that_was_not_measured_as_absent(self):
        reports = copy.deepcopy(self.reports)
        failed = reports[4]["quantization"][0]
        for key in [key for key, value in failed.items() if isinstance(value, float)]:
            del failed[key]
        failed["status"] = "nonfinite"
        write_run(self.path("gap"), reports, (), self.status)
        with serve(self.path("gap")) as server:
            self.browser.open(server.url)
            self.check_values(reports)
            self.assertFalse(any("NaN" in text or "undefined" in text for text in [self.browser.evaluate("document.body.innerText")]))
            self.quiet()

    def test_shows_the_tasks_of_a_checkpoint(self):
        reports = copy.deepcopy(self.reports)
        newest = reports[-1]
        newest["tasks"] = [{"task": HOSTILE, "metric": "acc", "examples": 1000, "value": 0.612, "value_stderr": 0.0154},
                           {"task": "words", "metric": "perplexity", "examples": 500, "value": 7.31, "value_stderr": 0.25}]
        newest.update(probe_accuracy_ratio=0.612, probe_accuracy_stderr=0.0154)
        entry = newest["quantization"][0]
        entry["tasks"] = [{**newest["tasks"][0], "value": 0.585, "degradation_ratio": 0.0696, "degradation_stderr": 0.0121},
                          {**newest["tasks"][1], "value": 9.5}]
        entry.update(accuracy_ratio=0.585, accuracy_degradation_ratio=0.0696, accuracy_degradation_stderr=0.0121)
        write_run(self.path("tasks"), reports, (), self.status)
        with serve(self.path("tasks")) as server, serve(self.run_dir) as without:
            self.browser.open(server.url)
            self.check_values(reports)
            acc, words, mean = self.browser.evaluate("[...document.querySelectorAll('#tasks tbody tr')].map((row) => "
                                                     "[...row.children].map((cell) => cell.textContent.replaceAll('\u00a0', ' ')))")
            self.assertEqual(acc, [HOSTILE + " acc", "1,000", "61.2 ± 1.5 %", "58.5 ± 1.5 %, D 7.0 ± 1.2 %"])
            self.assertEqual(words, ["words perplexity", "500", "7.31 ± 0.25", "9.50 ± 0.25"])
            self.assertEqual(mean, ["mean acc", "", "61.2 ± 1.5 %", "58.5 %, D 7.0 ± 1.2 %"])
            self.assertTrue(self.browser.evaluate("document.querySelector('#tasks td.worse') !== null"))
            self.quiet()
            self.browser.open(without.url)
            self.check_values(self.reports)
            self.assertTrue(self.browser.evaluate("document.getElementById('tasks-card').hidden"))

    def test_shows_loss_against_size_if_it_was_measured(self):
        reports = copy.deepcopy(self.reports)
        newest = reports[-1]
        newest.update(bytes_per_token=2, probe_loss_nats=2.0)
        sizes = {"gptq3": (4_000_000, 2.625, 0.25), "rtn3": (4_000_000, 2.75, 0.4), "gptq4": (5_000_000, 3.5, 0.05), "rtn4": (5_500_000, 3.5, 0.052)}
        for entry in newest["quantization"]:
            size, bits, delta = sizes[f"{entry['method']}{entry['bits']}"]
            entry.update(status="ok", artifact_bytes=size, entropy_bits=bits, delta_nats=delta, delta_stderr_nats=0.01)
        write_run(self.path("sizes"), reports, (), self.status)
        with serve(self.path("sizes")) as server, serve(self.run_dir) as without:
            self.browser.open(server.url)
            self.browser.until(SHOWN)
            rows = self.browser.evaluate("[...document.querySelectorAll('#sizes tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))")
            self.assertEqual(sorted(rows), [["gptq3", "4.000", "2.625", "2.25", "1.623", ""], ["gptq4", "5.000", "3.5", "2.05", "1.4788", ""],
                                            ["rtn3", "4.000", "2.75", "2.4", "1.7312", "gptq3"], ["rtn4", "5.500", "3.5", "2.052", "1.4802", ""]])
            self.assertEqual([row[1] for row in rows], ["4.000", "4.000", "5.000", "5.500"])
            self.quiet()
            self.browser.open(without.url)
            self.browser.until(SHOWN)
            self.assertTrue(self.browser.evaluate("document.getElementById('sizes-card').hidden"))

    def test_shows_checkpoints_over_tokens_with_a_line_for_each_branch(self):
        reports = copy.deepcopy(self.reports)
        half = len(reports) // 2
        onset = reports[half - 2]["step"] - 10
        for i, report in enumerate(reports):
            # The second branch begins anew, with steps that the first one has, too.
            first = i < half
            report.update(source="trajectory", branch="main" if first else HOSTILE, step=reports[i if first else i - half]["step"])
            report["tokens"] = 10_000_000 * report["step"] + (0 if first else 5_000_000)
            decays = first and i >= half - 2
            report.update(lr_phase="decay" if decays else "stable", decay_onset_step=onset)
            if not decays:
                del report["decay_onset_step"]
        run_dir = self.path("branches")
        write_run(run_dir, reports, (), self.status)
        page = self.path("branches.html")
        subprocess.run([PTQWATCH, "report", run_dir, "-o", page], check=True, capture_output=True, timeout=60)
        ids = ("error", "loss", "trace")
        with serve(run_dir) as server:
            for url in (server.url, "file://" + page):
                self.browser.open(url)
                self.browser.until(f"{SHOWN} && document.querySelector('#chart-evidence canvas').getAttribute('aria-label').length > 30")
                for chart in ids:
                    label = self.browser.evaluate(f"document.querySelector('#chart-{chart} canvas').getAttribute('aria-label')")
                    self.assertIn(f"over tokens {reports[0]['tokens']:,} to {reports[-1]['tokens']:,}", label)
                    marks = self.browser.evaluate(f"[...document.querySelectorAll('#chart-{chart} .legend li')].map((mark) => mark.textContent)")
                    self.assertEqual(marks[-2:], ["main", HOSTILE])
                    drawn = self.browser.evaluate(
                        f"Chart.getChart(document.querySelector('#chart-{chart} canvas')).data.datasets.filter((set) => set.drawn)"
                        ".map((set) => ({label: set.label, dash: set.borderDash, x: set.data.map((point) => point.x)}))")
                    for branch, part, dash in (("main", reports[:half], []), (HOSTILE, reports[half:], [8, 3])):
                        mine = [line for line in drawn if line["label"].endswith(", " + branch)]
                        self.assertGreater(len(mine), 0)
                        for line in mine:
                            self.assertEqual(line["x"], [report["tokens"] for report in part])
                            self.assertEqual(line["dash"], dash if not line["label"].startswith("training") else [4, 3])
                rows = self.table("trace")
                self.assertEqual(len(rows), len(reports))
                for row, report in zip(reversed(rows), reports):
                    self.assertEqual(row[:4], [f"{report['step']:,}", f"{report['tokens']:,}", report["lr_phase"], report["branch"]])
                    self.assert_number(row[4], report["curvature"]["trace"])
                shaded = self.browser.evaluate("Chart.getChart(document.querySelector('#chart-error canvas')).options.plugins.shading.phases"
                                               ".filter(({phase}) => phase === 'decay').map(({from, to}) => [from, to])")
                self.assertEqual(shaded, [[10_000_000 * onset, reports[half - 1]["tokens"]]])
                self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
                self.quiet()
            for report in reports:
                del report["tokens"]
        write_run(self.path("steps"), reports, (), self.status)
        with serve(self.path("steps")) as server:
            self.browser.open(server.url)
            self.browser.until(SHOWN)
            self.browser.until(f"document.querySelector('#chart-error canvas').getAttribute('aria-label').includes('over steps {reports[0]['step']:,}')")
            self.quiet()

    def test_names_the_rank_whose_parameters_differ(self):
        for rank in range(3):
            reports = copy.deepcopy(self.reports)
            for report in reports:
                report.update(rank=rank, ranks=3, parameter_digests=[{"name": HOSTILE, "digest": "1"}])
            if rank == 1:
                reports[-1].update(snapshot_digest="f00d", parameter_digests=[{"name": HOSTILE, "digest": "2"}])
            write_run(os.path.join(self.path("ranks"), f"rank-{rank:04d}"), reports, (), self.status)
        said = f"replicas differ since step {self.reports[-1]['step']}: rank 1 unlike most, first in {HOSTILE}"
        facts = "document.getElementById('facts').textContent"
        page = self.path("ranks.html")
        subprocess.run([PTQWATCH, "report", self.path("ranks"), "-o", page], stdout=subprocess.DEVNULL, timeout=60, check=True)
        with serve(self.path("ranks")) as server:
            for url in (server.url, "file://" + page):
                self.browser.open(url)
                self.browser.until(f"{SHOWN} && {facts}.includes({json.dumps(said)})")
                self.browser.until("document.getElementById('events').textContent.includes('the parameters of rank 1 differ')")
                self.quiet()

    def test_waits_for_the_first_report_and_shows_it(self):
        run_dir = self.path("first")
        with serve(run_dir) as server:
            self.browser.open(server.url)
            self.browser.until("document.getElementById('empty').textContent.includes('no run yet')")
            os.makedirs(run_dir)
            with open(self.status, encoding="utf-8") as file:
                status = json.load(file)
            status["status"].update(health="ok", step=7)
            with open(os.path.join(run_dir, "status.json"), "w", encoding="utf-8") as file:
                json.dump(status, file)
            self.browser.until("document.getElementById('empty').textContent.includes('Waiting for the first report')")
            with open(os.path.join(run_dir, "journal.jsonl"), "w", encoding="utf-8") as lines:
                lines.write(json.dumps(self.reports[0]) + "\n")
            self.browser.until(SHOWN)
            self.check_values(self.reports[:1])
            self.quiet()

    def test_goes_on_after_the_server_was_away(self):
        run_dir = self.path("away")
        write_run(run_dir, self.reports[:5], (), self.status)
        with serve(run_dir) as server:
            self.browser.open(server.url)
            self.check_values(self.reports[:5])
            address = server.url[len("http://"):-1]
            server.process.kill()
            server.process.wait()
            self.browser.until("document.getElementById('banner').textContent.startsWith('Disconnected since')")
        with open(os.path.join(run_dir, "journal.jsonl"), "a", encoding="utf-8") as lines:
            lines.writelines(json.dumps(report) + "\n" for report in self.reports[5:7])
        with serve(run_dir, address=address):
            self.browser.until("document.getElementById('banner').hidden")
            step = f"{self.reports[6]['step']:,}"
            self.browser.until(f"document.getElementById('verdict-age').textContent.includes('step {step}')")
            with open(os.path.join(run_dir, "journal.jsonl"), "a", encoding="utf-8") as lines:
                lines.writelines(json.dumps(report) + "\n" for report in self.reports[7:])
            step = f"{self.reports[-1]['step']:,}"
            self.browser.until(f"document.getElementById('verdict-age').textContent.includes('step {step}')")
            self.browser.console.clear()  # the missing server has been reported there, as expected
            self.check_values(self.reports)
            self.quiet()

    def test_tells_ages_by_the_clock_of_the_server(self):
        with serve(self.run_dir) as server:
            for skew in (-3600, 3600):
                self.browser.open(server.url, before=f"{{const real = Date.now; Date.now = () => real() + {1000 * skew};}}")
                self.browser.until(SHOWN)
                self.browser.until("document.getElementById('verdict-age').textContent !== ''")
                age = self.browser.evaluate("document.getElementById('verdict-age').textContent")
                self.assertRegex(age, r"Measured at step 400, [1-9]\d*\s(?:s|min) ago$")
                self.quiet()

    def test_logs_in_with_the_token(self):
        with open(self.path("token"), "w", encoding="utf-8") as file:
            file.write("correct-horse-battery")
        with serve(self.run_dir, flags=("--token-file", self.path("token"))) as server:
            address = server.url.removeprefix("http://")
            self.browser.open(f"http://me:correct-horse-battery@{address}")
            self.browser.until(SHOWN)
            self.check_values(self.reports)
        self.quiet()

    def test_lists_the_runs_of_a_server(self):
        write_run(self.path("a & b"), self.reports, (), self.status)
        with serve(self.run_dir, self.path("a & b"), self.path("none")) as server:
            self.browser.open(server.url)
            self.browser.until("document.querySelectorAll('.runcard svg').length === 4")
            names = self.browser.evaluate("[...document.querySelectorAll('.runcard')].map((card) => card.dataset.run)")
            self.assertEqual(names, ["a & b", "short"])
            largest = max(self.reports[-1]["quantization"], key=lambda entry: entry["error_ratio"])
            self.assert_number(self.browser.evaluate("document.querySelector('.runcard .spark b').textContent"), largest["error_ratio"], 100)
            self.browser.evaluate("document.querySelector('.runcard').click()")
            self.browser.until(f"location.search === '?run=a%20%26%20b' && {SHOWN}")
            self.check_values(self.reports)
            self.quiet()
            self.browser.open(server.url + "?run=other")
            self.browser.until("document.getElementById('empty').textContent.includes(\"run 'other' is not served here\")")


class ReportFile(unittest.TestCase):
    def test_mistakes(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, says, expected in (([folder, "-o", os.path.join(folder, "x.html")], folder, 1), ([folder], "--output", 2),
                                              (["-o", "x.html"], "RUN_DIR", 2)):
                done = subprocess.run([PTQWATCH, "report", *arguments], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stdout), (expected, ""), arguments)
                self.assertIn(says, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = sys.argv[1:3]
    if browser.program() is None:
        print("no chromium on the PATH: ./setup installs it")
        sys.exit(77)
    import serve_test
    serve_test.PTQWATCH = PTQWATCH
    assert math.isclose(numbers_of("−2.5e−5")[0][0], -2.5e-5)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
