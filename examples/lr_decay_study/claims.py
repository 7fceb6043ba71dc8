"""The claims of arXiv 2510.06213 that the study judges, each with its criterion. The criteria were fixed before any results were known."""

import functools
import itertools
import math

from legs import SHARES, decay_steps, decays, named, rate_below, rate_run, reference, weight_decay_run
from stats import fit_line, is_falling, is_rising, mean, ratio, spearman, standard_deviation

FEWEST_SEEDS = 3  # the fewest seeds that can decide a claim
MOST_DRIFT = 0.25  # 8: drift of E per doubling of the tokens, as a share of E's rise in a decay
LEAST_JUMP = 1.5  # 9: ratio of E at the end of a decay to E before it
SAME = 1.25  # errors whose ratio is below this count as the same
SAME_LOSS = 0.01  # 12: full-precision losses count as the same if they differ by a smaller share
SAME_LOSS_OF_DECAYS = 0.02  # 23: likewise, in a sweep of weight decays
TRACKS = 0.7  # 25: the least rank correlation for a signal to track E
AGREES = 0.9  # 28: the least rank correlation for quantizers to agree


def quantity(*keys):
    """Returns a function that reads a number of a point in results.json; NaN if it was not measured."""
    def get(point):
        for key in keys:
            point = point.get(key)
            if point is None:
                return math.nan
        return point
    return get


def error(quantizer):
    """E = CE(W_hat) / CE(W) - 1."""
    return quantity(quantizer, "error_ratio")


LOSS, TRACE = quantity("loss_nats"), quantity("trace")
E3, LOSS3, LOSS4 = error("gptq3"), quantity("gptq3", "loss_nats"), quantity("gptq4", "loss_nats")


class NotRun(Exception):
    """A claim needs a run that was not made."""


class Runs:
    """One seed's measurements: for each run its points by ascending step. A branch's points begin with its trunk's."""

    def __init__(self, results_runs, seed):
        self.runs = results_runs
        self.prefix = f"s{seed}."

    def points(self, run):
        points = self.runs.get(self.prefix + run)
        if not points:
            raise NotRun(run)
        return points

    def at(self, run, step):
        for point in self.points(run):
            if point["step"] == step:
                return point
        raise NotRun(run)

    def end(self, run, value=E3):
        return value(self.points(run)[-1])

    def end_error(self, run):
        end = self.end(run)
        if math.isnan(end):
            raise NotRun(run)
        return end

    def mean(self, run, after, to, value):
        return mean([value(point) for point in self.points(run) if after < point["step"] <= to])

    def before_and_after(self, run, steps, value):
        """The values around a decay of `steps` steps at the end of a run: the mean over as many steps before it, and the value at the end."""
        end = self.points(run)[-1]["step"]
        return self.mean(run, end - 2 * steps, end - steps, value), self.end(run, value)

    def jump(self, run, steps, value):
        before, after = self.before_and_after(run, steps, value)
        return ratio(after, before)


CLAIMS = []


def claim(name, text, paper, criterion):
    """Decorator that adds a function to CLAIMS. Given settings and Runs, the function returns whether they show the claim, and the numbers behind
    that. The names of the numbers are the same for every seed, and end with " %" or " nats" if that is the unit."""
    def add(find):
        CLAIMS.append((name, text, paper, criterion, find))
        return find
    return add


@claim("7", "A soup has a lower E than its ingredients.", "OLMo2 7B: 8.5 % against up to 9.9 %; 13B: 4.65 % against 5.1 to 5.7 %",
       "The mean of three cooldowns of one trunk with different batches has a lower 3-bit E than the best of them.")
def soup(s, runs):
    members = [reference(s)] + [named("member", i) for i in range(1, s.soup)]
    errors = [runs.end(member) for member in members]
    mixed = runs.end("soup")
    return mixed < min(errors), {
        "E of the mean %": 100 * mixed, "least E of a member %": 100 * min(errors), "mean E of the members %": 100 * mean(errors),
        "loss of the mean nats": runs.end("soup", LOSS), "mean loss of the members nats": mean([runs.end(member, LOSS) for member in members])}


def flat(value, s, runs):
    cooldowns = [runs.before_and_after(named("cooldown", budget), s.cooldown, value) for budget in s.budgets]
    risen = sum((after - before) / len(cooldowns) for before, after in cooldowns)
    points = [point for point in runs.points("trunk") if point["step"] >= s.budgets[0]]
    errors = [value(point) for point in points]
    slope, half_width = fit_line([math.log2(point["step"]) for point in points], errors)
    return abs(slope) + half_width < MOST_DRIFT * risen, {
        "E of the trunk %": 100 * mean(errors), "scatter between checkpoints %": 100 * standard_deviation(errors),
        "drift per doubling, points": 100 * slope, "half its 95 % interval": 100 * half_width, "rise in a cooldown, points": 100 * risen}


def same_ends(value, s, runs):
    cooldowns = {budget: named("cooldown", budget) for budget in s.budgets}
    ends = {budget: runs.end(run, value) for budget, run in cooldowns.items()}
    jumps = {budget: runs.jump(run, s.cooldown, value) for budget, run in cooldowns.items()}
    spread = ratio(max(ends.values()), min(ends.values()))
    return min(jumps.values()) >= LEAST_JUMP and spread < SAME, {
        **{f"end {budget} %": 100 * end for budget, end in ends.items()}, **{f"jump {budget}": jump for budget, jump in jumps.items()},
        "largest to smallest end": spread}


for bits in (3, 4):
    claim(f"8 ({bits} bits)", "At a constant rate E stays about constant.", "4 bits: +11 % of the mean over 100B tokens, scatter 3 %",
          "A line through the trunk's E over log2(tokens), from the first budget on: |slope| plus half its 95 % interval is below a quarter of "
          "the mean rise of E in the cooldowns.")(functools.partial(flat, error(f"gptq{bits}")))
for bits in (3, 4):
    claim(f"9 ({bits} bits)", "Every cooldown raises E, to about the same value whatever the budget.",
          "4 bits: jumps of 1.7 to 2.1, ends +12 % over 10 times the tokens",
          "Each budget's end is at least 1.5 times the mean E of as many steps before its cooldown, and the largest end below 1.25 times the "
          "smallest.")(functools.partial(same_ends, error(f"gptq{bits}")))


@claim("10", "The full-precision loss falls in every cooldown.", "3.65 to 3.42 nats",
       "At each budget the end is below the mean of as many steps before the cooldown.")
def loss_falls(s, runs):
    losses = {budget: runs.before_and_after(named("cooldown", budget), s.cooldown, LOSS) for budget in s.budgets}
    return all(after < before for before, after in losses.values()), {
        f"change {budget} nats": after - before for budget, (before, after) in losses.items()}


def order_of_rates(value, s, runs):
    onset = s.run - decay_steps(s)
    middle = {rate: runs.mean(rate_run(s, rate), onset // 2, onset, value) for rate in s.rates}
    ends = {rate: runs.end(rate_run(s, rate), value) for rate in s.rates}
    return is_falling(middle.values()) and is_falling(ends.values()), {
        **{f"mid-run {rate:g} %": 100 * value for rate, value in middle.items()},
        **{f"end {rate:g} %": 100 * value for rate, value in ends.items()}}


for bits, numbers in ((3, "9.8/7.5/5.8/4.3"), (4, "1.85/1.48/1.05/0.88")):
    claim(f"11 ({bits} bits)", "The higher the peak rate, the lower E, mid-run and at the end.",
          f"end {numbers} % for 3e-4/1e-3/3e-3/1e-2",
          "E falls strictly from each rate to the next, both as the mean over the second half of the time before the decay and at the "
          "end.")(functools.partial(order_of_rates, error(f"gptq{bits}")))


@claim("12", "At equal full-precision loss the larger rate gives the lower 3-bit loss.",
       "1e-3 against 3e-3: loss 3.405 and 3.406, 3-bit loss 3.662 and 3.604",
       "So it is in each pair of rates whose losses differ by less than 1 %, of which there is one at least.")
def equal_losses(s, runs):
    losses = {rate: runs.end(rate_run(s, rate), LOSS) for rate in s.rates}
    quantized = {rate: runs.end(rate_run(s, rate), LOSS3) for rate in s.rates}
    pairs = [(low, high) for low, high in itertools.combinations(s.rates, 2)
             if abs(losses[low] - losses[high]) < SAME_LOSS * min(losses[low], losses[high])]
    better = sum(quantized[high] < quantized[low] for low, high in pairs)
    return 0 < len(pairs) == better, {
        **{f"loss {rate:g} nats": value for rate, value in losses.items()},
        **{f"3-bit loss {rate:g} nats": value for rate, value in quantized.items()},
        "pairs of equal loss": len(pairs), "of them with the larger rate ahead": better}


@claim("16", "The larger the rate, the larger the relative jump in its decay.", "1.4/1.6/1.85/2.1 for 3e-4/1e-3/3e-3/1e-2",
       "The ratio of 3-bit E at the end to its mean over as many steps before the decay rises strictly from each rate to the next.")
def jumps_of_rates(s, runs):
    jumps = {rate: runs.jump(rate_run(s, rate), decay_steps(s), E3) for rate in s.rates}
    return is_rising(jumps.values()), {f"jump {rate:g}": jump for rate, jump in jumps.items()}


@claim("17", "A longer decay ends with a slightly larger E.", "4 bits: 0.94 % after 18k steps, 1.05 % after 38k",
       "3-bit E rises strictly from a decay over 10 % of the run to 20 % and 40 %.")
def lengths_of_decays(s, runs):
    ends = {part: runs.end_error(named("linear", part)) for part in s.fractions}
    return is_rising(end for part, end in ends.items() if part >= 0.1), {
        f"end of {100 * part:g} % decay %": 100 * end for part, end in ends.items()}


@claim("18", "LAWA on the constant rate is worse than a cooldown in full precision and better at 3 bits.",
       "loss 3.650/3.491/3.405 for trunk/LAWA/cooldown; 3-bit 3.753/3.560/3.604; 65 % of the gain",
       "At the same step: loss of the cooldown < LAWA < trunk, and 3-bit loss of LAWA < cooldown.")
def averages_and_cooldowns(s, runs):
    trunk, lawa, cooldown = runs.at("trunk", s.run), runs.at("average", s.run), runs.points(reference(s))[-1]
    return LOSS(cooldown) < LOSS(lawa) < LOSS(trunk) and LOSS3(lawa) < LOSS3(cooldown), {
        "loss trunk nats": LOSS(trunk), "loss LAWA nats": LOSS(lawa), "loss cooldown nats": LOSS(cooldown),
        "3-bit trunk nats": LOSS3(trunk), "3-bit LAWA nats": LOSS3(lawa), "3-bit cooldown nats": LOSS3(cooldown),
        "4-bit LAWA nats": LOSS4(lawa), "4-bit cooldown nats": LOSS4(cooldown),
        "share of the cooldown's gain in loss": ratio(LOSS(trunk) - LOSS(lawa), LOSS(trunk) - LOSS(cooldown))}


def averages_to_trunk(runs, value):
    return [ratio(value(average), value(runs.at("trunk", average["step"]))) for average in runs.points("average")]


@claim("19", "LAWA lowers E below that of the trunk itself.", "0.68 times in the mean",
       "At every step at which the average of a full window is measured its 3-bit E is below the trunk's.")
def averages_below_trunk(s, runs):
    ratios = averages_to_trunk(runs, E3)
    return max(ratios) < 1, {"mean ratio to the trunk": mean(ratios), "largest ratio": max(ratios), "averages": len(ratios)}


@claim("22 (end)", "A cosine ends with a larger E than WSD after the same tokens.", "ordinal only",
       "3-bit E at the end of the whole-run cosine is above that of the reference.")
def end_of_cosine(s, runs):
    cosine, wsd = runs.points(named("cosine", s.run))[-1], runs.points(reference(s))[-1]
    return E3(cosine) > E3(wsd), {
        "cosine %": 100 * E3(cosine), "WSD %": 100 * E3(wsd), "loss cosine nats": LOSS(cosine), "loss WSD nats": LOSS(wsd),
        "3-bit loss cosine nats": LOSS3(cosine), "3-bit loss WSD nats": LOSS3(wsd)}


@claim("22 (slope)", "E grows more slowly with the tokens under WSD than under a cosine.", "ordinal only",
       "The slope of 3-bit E over log2(tokens) is smaller for the cooldowns than for the cosines of the same lengths.")
def slope_of_cosines(s, runs):
    made = []
    for steps in s.cosines:
        try:
            made.append((math.log2(steps), runs.end_error(named("cosine", steps)), runs.end_error(named("cooldown", steps))))
        except NotRun:
            continue
    if len(made) < 3:
        raise NotRun("cosine")
    doublings, cosines, cooldowns = zip(*made)
    cosine, wsd = fit_line(doublings, cosines)[0], fit_line(doublings, cooldowns)[0]
    return wsd < cosine, {"cosine, points per doubling": 100 * cosine, "WSD, points per doubling": 100 * wsd}


@claim("23", "A larger weight decay lowers E at the same loss, by less than the rate does.", "ordinal only",
       "3-bit E falls strictly with weight decay, losses within 2 %, and no step of it has as large a factor as the step from the next lower "
       "rate to the peak.")
def weight_decays(s, runs):
    ends = {decay: runs.end(weight_decay_run(s, decay)) for decay in s.decays}
    losses = {decay: runs.end(weight_decay_run(s, decay), LOSS) for decay in s.decays}
    # This compares the nearest rate below the peak with one step between weight decays, which is about as large.
    lower = rate_below(s)
    by_rate = ratio(runs.end_error(rate_run(s, lower)), runs.end_error(reference(s)))
    by_decay = max(0.0, *(ratio(a, b) for a, b in itertools.pairwise(ends.values())))
    least, most = min(losses.values()), max(losses.values())
    return is_falling(ends.values()) and by_decay < by_rate and most - least < SAME_LOSS_OF_DECAYS * least, {
        **{f"end {decay:g} %": 100 * end for decay, end in ends.items()}, **{f"loss {decay:g} nats": loss for decay, loss in losses.items()},
        "largest factor of a step of weight decay": by_decay, "factor of a step of the rate": by_rate}


def one_recipe(s):
    """[(run, step)]: points of the run count after the step. The trunk from the first budget on, and its cooldowns from the step at which they
    leave it."""
    return [("trunk", s.budgets[0] - 1), *((named("cooldown", budget), budget - s.cooldown) for budget in s.budgets),
            (reference(s), s.run - decay_steps(s))]


def all_recipes(s):
    """one_recipe, and the other rates and the averages from the first budget on."""
    return one_recipe(s) + [(run, s.budgets[0] - 1) for run in [rate_run(s, rate) for rate in s.rates if rate != s.peak] + ["average"]]


def correlation(runs, where, x, y):
    """Spearman's correlation over the points that have both numbers, and their count. Skips runs that were not made."""
    points = [point for run, after in where for point in runs.runs.get(runs.prefix + run, ()) if point["step"] > after]
    pairs = [(x(point), y(point)) for point in points if not math.isnan(x(point) + y(point))]
    return spearman([a for a, _ in pairs], [b for _, b in pairs]), len(pairs)


def tracks(signal, s, runs):
    by_rate = [runs.end(rate_run(s, rate), signal) for rate in s.rates]
    ratios = averages_to_trunk(runs, signal)
    below = sum(ratio < 1 for ratio in ratios)
    one, n = correlation(runs, one_recipe(s), signal, E3)
    every, n_of_all = correlation(runs, all_recipes(s), signal, E3)
    return one >= TRACKS and is_falling(by_rate) and below == len(ratios), {
        "Spearman, one recipe": one, "n": n, "Spearman, all recipes": every, "n of all": n_of_all,
        "jump in the decay": runs.jump(reference(s), decay_steps(s), signal),
        "lowest to highest rate": ratio(by_rate[0], by_rate[-1]), "LAWA to trunk": mean(ratios),
        "share of averages below the trunk": below / len(ratios)}


for name, text, signal in (
        ("trace", "The Hessian's trace", TRACE), ("top eigenvalue", "The top eigenvalue", quantity("top_eigenvalue")),
        ("weighted trace", "The weight-scaled trace, which the paper does not have,", quantity("weighted_trace"))):
    claim(f"25 ({name})", f"{text} tracks E: up in a decay, lower at high rates and for averages.", "ordinal only",
          "Spearman with 3-bit E over trunk and cooldowns of one recipe is 0.7 at least; it falls strictly from each rate to the next at the "
          "end; LAWA is below the trunk at every step.")(functools.partial(tracks, signal))


@claim("28", "Quantizers agree: RTN ranks checkpoints as GPTQ does.", "ordinal only",
       "Spearman of the two over the checkpoints of all recipes is 0.9 at least at 3 bits.")
def quantizers_agree(s, runs):
    runs.points(rate_run(s, s.rates[0]))
    three, n = correlation(runs, all_recipes(s), error("rtn3"), E3)
    four, _ = correlation(runs, all_recipes(s), error("rtn4"), error("gptq4"))
    return three >= AGREES, {"Spearman, 3 bits": three, "Spearman, 4 bits": four, "n": n}


def is_same(a, b):
    """False if either is NaN."""
    return a < SAME * b and b < SAME * a


@claim("shape", "Over the same last part of a run the shape of the decay matters little.", "not in the paper",
       "3-bit E after 1 - sqrt and after cosine is within a factor of 1.25 of that after linear.")
def shapes_of_decays(s, runs):
    linear, root, tail = (runs.end_error(run) for run in (reference(s), "sqrt", "tail"))
    return is_same(root, linear) and is_same(tail, linear), {"linear %": 100 * linear, "1 - sqrt %": 100 * root, "cosine %": 100 * tail}


@claim("time", "A whole-run cosine ends with a larger E than WSD for its time at small rates, not for its shape.", "not in the paper",
       "Linear and cosine decays end within a factor of 1.25 of each other, both over the whole run and over its last part; whole-run ones at "
       "least 1.25 times above short ones.")
def time_or_shape(s, runs):
    whole = named("cosine", s.run)
    short_line, short_cosine, line, cosine = (runs.end_error(run) for run in (reference(s), "tail", "line", whole))
    made = {run: decay for run, decay in decays(s).items() if runs.prefix + run in runs.runs}
    # Counts steps with a rate below a tenth of the peak.
    small = [sum(s.peak * SHARES[shape](left / steps) < 0.1 * s.peak for left in range(1, steps + 1)) for steps, shape in made.values()]
    plateau = runs.mean("trunk", s.run // 2, s.run, TRACE)
    return (is_same(line, cosine) and is_same(short_line, short_cosine)
            and min(line, cosine) >= SAME * max(short_line, short_cosine)), {
        "short linear %": 100 * short_line, "short cosine %": 100 * short_cosine, "whole linear %": 100 * line, "whole cosine %": 100 * cosine,
        "trace of the whole cosine to the plateau's": ratio(runs.end(whole, TRACE), plateau),
        "Spearman of E and steps below a tenth of the peak": spearman(small, [runs.end(run) for run in made]),
        "of the trace": spearman(small, [runs.end(run, TRACE) for run in made]), "n": len(made)}


def verdict(seeds):
    holding = sum(holds for holds, _ in seeds)
    if not seeds:
        return "not run"
    if len(seeds) < FEWEST_SEEDS:
        return "too few seeds"
    return "holds" if holding == len(seeds) else "unclear" if holding else "does not hold"


def formatted(value, unit):
    """Rounds for a table. Losses get three decimals."""
    size = abs(value)
    is_count = value == math.floor(value) if math.isfinite(value) else False
    decimals = 3 if unit == " nats" else 0 if size >= 100 or is_count and not unit else 1 if size >= 10 else 2
    return f"{value:.{decimals}f}"


def summary(seeds):
    """One line of numbers over the seeds, "NAME MEAN ± SD" each."""
    parts = []
    for name in seeds[0][1] if seeds else ():
        unit = next((unit for unit in (" %", " nats") if name.endswith(unit)), "")
        values = [numbers[name] for _, numbers in seeds]
        spread = standard_deviation(values)
        parts.append(f"{name.removesuffix(unit)} {formatted(mean(values), unit)}" + (f" ± {formatted(spread, unit)}" if spread > 0 else "") + unit)
    return "; ".join(parts)


def judge(s, results_runs):
    """Judges all claims, for "claims" in results.json. Skips seeds whose runs were not made."""
    judged = []
    for name, text, paper, criterion, find in CLAIMS:
        seeds = []
        for seed in range(s.seeds):
            try:
                seeds.append(find(s, Runs(results_runs, seed)))
            except NotRun:
                continue
        judged.append({
            "id": name, "claim": text, "paper": paper, "criterion": criterion, "measured": summary(seeds), "verdict": verdict(seeds),
            "seeds": [{"holds": holds, "numbers": {key: value if math.isfinite(value) else None for key, value in numbers.items()}}
                      for holds, numbers in seeds]})
    return judged
