"""Claims about number formats and rotation, which the paper does not make. Importing this module adds them to claims.CLAIMS. The criteria were fixed
before any results were known."""

import functools
import math
import types

from claims import AGREES, LEAST_JUMP, NotRun, all_recipes, claim, correlation, error, is_same, order_of_rates, quantity
from legs import decay_steps, rate_run
from stats import geometric_mean, ratio

NEW = "not in the paper"
FEWEST_RATES = 2  # the peak's and another
IMMUNE = 0.1  # the most that E may rise, as a share of the rise of 4-bit GPTQ's


def rates_run(s, runs):
    """The rates with which every seed was trained, which are the same for every seed. An unfinished study may lack some."""
    rates = [rate for rate in s.rates if all(f"s{seed}.{rate_run(s, rate)}" in runs.runs for seed in range(s.seeds))]
    if s.peak not in rates or len(rates) < FEWEST_RATES:
        raise NotRun("rates")
    return rates


def around_decays(s, runs, quantizer, key="error_ratio"):
    """{rate: (mean over as many steps before the decay, value at its end)} of one of a quantizer's numbers."""
    value = quantity(quantizer, key)
    found = {rate: runs.before_and_after(rate_run(s, rate), decay_steps(s), value) for rate in rates_run(s, runs)}
    if any(math.isnan(after) for _, after in found.values()):
        raise NotRun(quantizer)
    return found


def factor(s, runs, quantizer, key="error_ratio"):
    """The factor by which a decay raises one of a quantizer's numbers: the geometric mean over the rates."""
    return geometric_mean([ratio(after, before) for before, after in around_decays(s, runs, quantizer, key).values()])


def level(s, runs, quantizer, other):
    """E of a quantizer relative to that of another, before the decay and at its end: geometric means over the rates."""
    pairs = zip(around_decays(s, runs, quantizer).values(), around_decays(s, runs, other).values())
    return [geometric_mean(ratios) for ratios in zip(*([ratio(a, b) for a, b in zip(ours, theirs)] for ours, theirs in pairs))]


def of_reference(s, runs, quantizer):
    before, after = around_decays(s, runs, quantizer)[s.peak]
    return {"plateau %": 100 * before, "end %": 100 * after, "rise, points": 100 * (after - before)}


def jumps_as_integers(quantizer, integers, s, runs):
    ours, theirs = factor(s, runs, quantizer), factor(s, runs, integers)
    before, after = level(s, runs, quantizer, integers)
    return ours >= LEAST_JUMP and is_same(ours, theirs), {
        **of_reference(s, runs, quantizer), "factor": ours, "factor of integers": theirs,
        "plateau to that of integers": before, "end to that of integers": after}


for method in ("gptq", "rtn"):
    for form in ("mxfp4", "nvfp4"):
        claim(f"jump ({method}-{form})", "The decay raises E as it raises that of 4-bit integers.", NEW,
              "The factor of E in the decay (the end to the mean over as many steps before it; the geometric mean over the rates that were "
              "run) is at least 1.5, and within a factor of 1.25 of that of 4-bit integers under the same method.")(
                  functools.partial(jumps_as_integers, f"{method}-{form}", f"{method}4"))


@claim("immune (gptq-fp8_e4m3)", "FP8 is immune to the decay.", NEW,
       "At every rate E of FP8 rises in the decay by at most a tenth of the rise of 4-bit GPTQ's.")
def is_immune(s, runs):
    quantizer = "gptq-fp8_e4m3"
    ours, theirs = around_decays(s, runs, quantizer), around_decays(s, runs, "gptq4")
    shares = [ratio(ours[rate][1] - ours[rate][0], theirs[rate][1] - theirs[rate][0]) for rate in ours]
    rises = all(after > before for before, after in theirs.values())
    return rises and all(share <= IMMUNE for share in shares), {
        **of_reference(s, runs, quantizer), "largest share of the integers' rise": max(shares)}


def rates_in_order(quantizer, s, runs):
    rates = list(around_decays(s, runs, quantizer))
    return order_of_rates(error(quantizer), types.SimpleNamespace(**vars(s) | {"rates": rates}), runs)


for form in ("mxfp4", "nvfp4"):
    claim(f"rates (gptq-{form})", "The higher the peak rate, the lower E, mid-run and at the end.", NEW,
          "As for integers (11): E falls strictly from each rate to the next, both as the mean over the second half of the time before the decay "
          "and at its end.")(functools.partial(rates_in_order, f"gptq-{form}"))


def methods_agree(form, s, runs):
    around_decays(s, runs, f"gptq-{form}")
    found, n = correlation(runs, all_recipes(s), error(f"rtn-{form}"), error(f"gptq-{form}"))
    return found >= AGREES, {"Spearman": found, "n": n}


for form in ("mxfp4", "nvfp4"):
    claim(f"agree ({form})", "RTN ranks checkpoints as GPTQ does.", NEW,
          "As for integers (28): Spearman of the two over the checkpoints of all recipes that were run is 0.9 at least.")(
              functools.partial(methods_agree, form))


def rotation_lowers(rotated, plain, s, runs):
    before, after = level(s, runs, rotated, plain)
    return before < 1 and after < 1, {**of_reference(s, runs, rotated), "plateau to that without": before, "end to that without": after}


def rotation_keeps_factor(rotated, plain, s, runs):
    ours, theirs = factor(s, runs, rotated), factor(s, runs, plain)
    return is_same(ours, theirs), {"factor": ours, "factor without": theirs, "ratio of the two": ratio(ours, theirs)}


for rotated, plain in (("gptq4-int-h64", "gptq4"), ("gptq-mxfp4-h32", "gptq-mxfp4")):
    claim(f"level ({rotated})", "Rotation lowers E.", NEW,
          "E with rotation is below E without it, both before the decay (the mean over as many steps) and at its end (geometric means over the "
          "rates that were run).")(functools.partial(rotation_lowers, rotated, plain))
    claim(f"factor ({rotated})", "Rotation keeps the factor by which the decay raises E.", NEW,
          "The factors of E in the decay with rotation and without it are within 1.25 of each other (geometric means over the rates that were run).")(
              functools.partial(rotation_keeps_factor, rotated, plain))


def sharper_not_larger(quantizer, s, runs):
    size, sharpness = factor(s, runs, quantizer, "displacement_norm")**2, factor(s, runs, quantizer, "curvature_along_error")
    return sharpness > size, {"factor of E": factor(s, runs, quantizer), "of d'Hd / d'd": sharpness, "of d'd": size}


for quantizer in ("gptq4", "gptq-mxfp4", "gptq-nvfp4"):
    claim(f"sharper ({quantizer})", "E rises in the decay because the loss gets sharper along the error d = W_hat - W, not because d grows.", NEW,
          "The factor of d'Hd / d'd in the decay is larger than that of d'd (geometric means over the rates that were run).")(
              functools.partial(sharper_not_larger, quantizer))
