"""Draws results.json as PNG with gnuplot. Lines are means over the seeds; bars and bands are their range."""

import os
import subprocess

import help_claims
from claims import E3, LOSS, LOSS3, TRACE, error, quantity
from legs import DENSE, MIXTURE, decays, merges, named, rate_below, rate_run, reference
from stats import mean

# Okabe and Ito's palette, which people with color blindness can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999933", "#000000")
# Curves of `formats`.
FORMATS = (("3-bit integers", "gptq3"), ("4-bit integers", "gptq4"), ("MXFP4", "gptq-mxfp4"), ("NVFP4", "gptq-nvfp4"),
           ("FP8 (E4M3)", "gptq-fp8_e4m3"))
HEAD = """set terminal pngcairo size 900,560 font 'sans,11' enhanced
set encoding utf8
set border 3
set tics nomirror
set grid lc rgb '#dddddd' lt 1 lw 0.5
set key outside right top Left reverse samplen 2
"""


def percent(value):
    return lambda point: 100 * value(point)


class CannotDraw(Exception):
    """The message says why."""


def data(name, rows):
    return f"${name} << EOD\n" + "".join(" ".join(f"{value:.6g}" for value in row) + "\n" for row in rows) + "EOD\n"


def plot(head, parts):
    """A complete gnuplot script; None if there is nothing to draw."""
    return HEAD + head + "plot " + ", \\\n  ".join(parts) + "\n" if parts else None


def lines(title, ylabel, curves, low="0", log=False):
    """Curves over steps: (name or "", curve, color, dash). On a logarithmic axis, leaves out points whose range reaches zero."""
    head, parts = f"set title '{title}'\nset xlabel 'step'\nset ylabel '{ylabel}'\nset yrange [{low}:*]\n", []
    bands = []
    head += "set logscale y\n" if log else ""
    for i, (name, curve, color, dash) in enumerate(curves):
        curve = [row for row in curve if not log or row[2] > 0]
        if curve:
            head += data(f"d{i}", curve)
            bands.append(f"$d{i} using 1:3:4 with filledcurves fs solid 0.15 noborder lc rgb '{color}' notitle")
            parts.append(f"$d{i} using 1:2 with lines lw 2 dt {dash} lc rgb '{color}' " + (f"title '{name}'" if name else "notitle"))
    return plot(head, bands + parts)


class Plots:
    def __init__(self, s, results_runs):
        self.s = s
        self.runs = results_runs

    def points(self, run, after=0):
        """The points of all seeds."""
        return [point for seed in range(self.s.seeds) for point in self.runs.get(f"s{seed}.{run}", ()) if point["step"] > after]

    def curve(self, run, value, after=0, to=float("inf")):
        """[(step, mean, least, most)] over the seeds that have the run."""
        by_step = {}
        for point in self.points(run, after):
            if value(point) == value(point) and point["step"] <= to:
                by_step.setdefault(point["step"], []).append(value(point))
        return [(step, mean(values), min(values), max(values)) for step, values in sorted(by_step.items())]

    def budget(self, bits):
        value = percent(error(f"gptq{bits}"))
        curves = [("constant rate", self.curve("trunk", value), COLORS[0], 1)]
        for budget in self.s.budgets:
            cooldown = self.curve(named("cooldown", budget), value, budget - self.s.cooldown - 1)
            curves.append(("cooldowns" if budget == self.s.budgets[0] else "", cooldown, COLORS[1], 1))
        curves.append(("LAWA", self.curve("average", value), COLORS[2], 1))
        return lines(f"Error under {bits}-bit GPTQ: constant rate, cooldowns, averages", "E in %", curves)

    def rates(self):
        return lines("Error under 3-bit GPTQ by peak learning rate", "E in %", [
            (f"peak {rate:g}", self.curve(rate_run(self.s, rate), percent(E3)), color, 1) for rate, color in zip(self.s.rates, COLORS)])

    def formats(self):
        return lines("Error of GPTQ by number format, in the reference run", "E in %", [
            (label, self.curve(reference(self.s), percent(error(quantizer)), self.s.budgets[0] - 1), color, 1)
            for (label, quantizer), color in zip(FORMATS, COLORS)], low="*", log=True)

    def losses(self):
        curves, start = [], self.s.run // 4 - 1
        for run, name, color, after in (("trunk", "constant rate", COLORS[0], start), (reference(self.s), "cooldown", COLORS[1],
                                        self.s.run * (1 - self.s.fraction) - 1), ("average", "LAWA", COLORS[2], start)):
            curves.append((f"{name}, 3 bits", self.curve(run, LOSS3, after, self.s.run), color, 1))
            curves.append((f"{name}, full precision", self.curve(run, LOSS, after, self.s.run), color, 2))
        return lines("Held-out loss in full precision and under 3-bit GPTQ", "nats", curves, low="*")

    def shapes(self, value, title, ylabel):
        """A bar for the end of each decay."""
        rows = []
        for run, (steps, shape) in decays(self.s).items():
            part = "whole run" if steps == self.s.run - self.s.warmup else f"last {100 * steps / self.s.run:g} %"
            rows += [(f'"{shape.replace("sqrt", "1 - sqrt")}, {part}"', *row[1:]) for row in self.curve(run, value, self.s.run - 1)]
        head = (f"set title '{title}'\nset ylabel '{ylabel}'\nset yrange [0:*]\nset style fill solid 0.6\nset boxwidth 0.7\nunset key\n"
                "set xtics rotate by -30\n$d << EOD\n")
        head += "".join(f"{i} {m:.6g} {a:.6g} {b:.6g} {name}\n" for i, (name, m, a, b) in enumerate(rows)) + "EOD\n"
        return plot(head, rows and [f"$d using 1:2:xtic(5) with boxes lc rgb '{COLORS[0]}'",
                                    "$d using 1:2:3:4 with yerrorbars lc rgb '#333333' lw 1.5 pt 7 ps 0.5"])

    def scatter(self, head, x, y, groups, size=0.5):
        """Groups of points: (name, [(run, after)])."""
        parts = []
        for (group, runs), color in zip(groups, COLORS):
            rows = [(x(point), y(point)) for run, after in runs for point in self.points(run, after)]
            rows = [row for row in rows if row[0] > 0 and row[1] > 0]
            if rows:
                head += data(f"d{len(parts)}", rows)
                parts.append(f"$d{len(parts)} with points pt 7 ps {size} lc rgb '{color}' title '{group}'")
        return plot(head, parts)

    def signal(self, value, name):
        first = self.s.budgets[0] - 1
        groups = [("constant rate", [("trunk", first)]),
                  ("cooldowns", [(named("cooldown", budget), budget - self.s.cooldown) for budget in self.s.budgets]),
                  *((f"peak {rate:g}", [(rate_run(self.s, rate), first)]) for rate in self.s.rates if rate != self.s.peak),
                  ("LAWA", [("average", first)])]
        head = f"set title '{name} and error'\nset xlabel '{name}'\nset ylabel 'E in %, 3 bits'\nset logscale xy\n"
        return self.scatter(head, value, percent(E3), groups)

    def instead(self):
        last, lower = self.s.run - 1, rate_below(self.s)
        groups = [("constant rate", ["plateau"]), ("decays", [run for run, (steps, _) in decays(self.s).items() if steps < self.s.run - self.s.warmup]),
                  ("merges", merges(self.s)), *((f"SAM in the decay, {rho:g}", [named("sam", rho)]) for rho in self.s.sam_rhos),
                  (f"AdamW, peak {lower:g}", [rate_run(self.s, lower)]), *((f"Muon, peak {rate:g}", [named("muon", rate)]) for rate in self.s.muon_rates)]
        head = f"set title 'Held-out losses after {self.s.run} steps'\nset xlabel 'nats, full precision'\nset ylabel 'nats, 3 bits'\n"
        return self.scatter(head, LOSS, LOSS3, [(name, [(run, last) for run in runs]) for name, runs in groups], size=0.9)

    def mixture(self):
        return lines("Error under GPTQ: a mixture of experts and a dense model", "E in %", [
            (f"{name}, {bits} bits", self.curve(run, percent(error(f"gptq{bits}"))), color, dash)
            for bits, dash in ((3, 1), (4, 2)) for name, run, color in (("mixture", MIXTURE, COLORS[0]), ("dense", DENSE, COLORS[1]))])

    def help(self):
        """What each decay of the part `help` gains in full precision, and what it adds to the gap."""
        head = ("set title 'Decays: what they gain in full precision, and what they add to the gap'\nset xlabel 'fall of CE(W), nats'\n"
                "set ylabel 'rise of the gap, nats'\nset xzeroaxis lc rgb '#333333'\n")
        seeds = help_claims.by_seed(self.s, self.runs)
        parts = ["x with lines lw 1 dt 2 lc rgb '#333333' title 'nothing gained'"]
        for (label, quantizer), color in zip((("8-bit RTN", "rtn8"), ("6-bit RTN", "rtn6"), ("4-bit RTN", "rtn4"), ("4-bit GPTQ", "gptq4"),
                                              ("3-bit GPTQ", "gptq3")), COLORS):
            rises = [[cells.end(cell, value, *variant) - cells.constant(cell, value) for value in (LOSS, help_claims.gap(quantizer))]
                     for cells in seeds for cell in cells.cells for variant in cells.variants]
            head += data(quantizer, [(-loss, gap) for loss, gap in rises])
            parts.append(f"${quantizer} with points pt 7 ps 0.6 lc rgb '{color}' title '{label}'")
        return plot(head, seeds and parts)

    def all(self):
        """{name: gnuplot script, or None if its runs were not made}."""
        return {
            "budget3": self.budget(3), "budget4": self.budget(4), "rates": self.rates(), "formats": self.formats(), "losses": self.losses(),
            "shapes": self.shapes(percent(E3), "Error under 3-bit GPTQ at the end, by decay", "E in %"),
            "shapes-trace": self.shapes(TRACE, "Trace of the Hessian at the end, by decay", "trace"),
            "trace": self.signal(TRACE, "Trace of the Hessian"),
            "weighted-trace": self.signal(quantity("weighted_trace"), "Weight-scaled trace"),
            "instead": self.instead(), "mixture": self.mixture(), "help": self.help(),
        }


def draw(script, path):
    """Writes the whole PNG or nothing."""
    try:
        done = subprocess.run(["gnuplot"], input=script.encode(), capture_output=True)
    except FileNotFoundError:
        raise CannotDraw("the program gnuplot is missing: apt install gnuplot-nox") from None
    if done.returncode != 0 or not done.stdout:
        raise CannotDraw("gnuplot: " + (done.stderr.decode().strip().splitlines() or ["no reason given"])[-1])
    with open(f"{path}.new", "wb") as image:
        image.write(done.stdout)
    os.replace(f"{path}.new", path)
