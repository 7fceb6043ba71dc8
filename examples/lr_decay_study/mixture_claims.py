"""Claims about a mixture of experts, which the paper does not make. Importing this module adds them to claims.CLAIMS. The criteria were fixed before
any results were known."""

import collections
import functools
import math
import statistics

from claims import E3, LEAST_JUMP, LOSS, LOSS3, SAME, NotRun, claim, error, is_same, quantity
from legs import DENSE, MIXTURE, mixture_decay
from stats import mean, ratio, spearman
from study_dir import EXPERT

NEW = "not in the paper"
RANKED = -0.5  # the most that a rank correlation may be if rarely used experts are hurt more
PREDICTED = {4: 0.3, 3: 0.4}  # the most by which a prediction may miss the change, as a share of it, by bits
QUANTIZERS = {4: ("gptq4", "rtn4", "gptq-mxfp4", "gptq-nvfp4"), 3: ("gptq3", "rtn3")}


def known(*values):
    if not all(math.isfinite(value) for value in values):
        raise NotRun("a number that was not measured")


def jump(s, runs, quantizer, run=MIXTURE):
    return runs.jump(run, mixture_decay(s), error(quantizer))


def raises_error(quantizer, integers, s, runs):
    before, after = runs.before_and_after(MIXTURE, mixture_decay(s), error(quantizer))
    ours, theirs = ratio(after, before), jump(s, runs, integers)
    known(ours, theirs)
    return ours >= LEAST_JUMP and is_same(ours, theirs), {
        "before %": 100 * before, "end %": 100 * after, "factor": ours, "factor of integers": theirs,
        "factor in the dense model": jump(s, runs, quantizer, DENSE)}


for quantizer in ("gptq3", "gptq4", "gptq-mxfp4", "gptq-nvfp4"):
    integers = quantizer if quantizer[4:].isdecimal() else "gptq4"
    claim(f"mixture (jump, {quantizer})", "The decay raises E of a mixture of experts.", NEW,
          "E at the end is at least 1.5 times its mean over as many steps before the decay" +
          ("." if quantizer == integers else ", and the factor is within 1.25 of that of 4-bit integers."))(
              functools.partial(raises_error, quantizer, integers))


@claim("mixture (flat)", "At a constant rate E of a mixture stays about constant.", NEW,
       "The mean of 3-bit E over the second half of the time before the decay is within a factor of 1.25 of that over the quarter before.")
def is_flat(s, runs):
    onset = s.mixture_run - mixture_decay(s)
    early, late = runs.mean(MIXTURE, onset // 4, onset // 2, E3), runs.mean(MIXTURE, onset // 2, onset, E3)
    known(early, late)
    return is_same(early, late), {"second quarter %": 100 * early, "second half %": 100 * late, "ratio": ratio(late, early)}


@claim("mixture (as dense)", "The decay raises E of a mixture as it raises that of a dense model.", NEW,
       "The factors of 3-bit E in the decay are within 1.25 of each other.")
def rises_as_dense(s, runs):
    ours, theirs = jump(s, runs, "gptq3"), jump(s, runs, "gptq3", DENSE)
    known(ours, theirs)
    return is_same(ours, theirs), {"factor": ours, "dense": theirs, "end %": 100 * runs.end(MIXTURE), "dense end %": 100 * runs.end(DENSE)}


@claim("mixture (3-bit loss)", "At 3 bits a mixture is ahead of a dense model that computes a token with as many parameters.", NEW,
       "The 3-bit loss at the end is below that of the dense model.")
def is_ahead(s, runs):
    known(runs.end(MIXTURE, LOSS3), runs.end(DENSE, LOSS3))
    return runs.end(MIXTURE, LOSS3) < runs.end(DENSE, LOSS3), {
        f"{name} {what} nats": runs.end(run, value)
        for what, value in (("loss", LOSS), ("3-bit loss", LOSS3)) for name, run in (("mixture", MIXTURE), ("dense", DENSE))}


def experts_of(point):
    """{(block, expert): {matrix: row}} of 3-bit GPTQ. A row has the keys of study_dir.EXPERT."""
    found = collections.defaultdict(dict)
    columns = point["gptq3"].get("experts")
    # In a report, those of a stack have no rows of their own, and one without tokens has no errors.
    if not columns or any(None in columns.get(key, [None]) for key in EXPERT):
        raise NotRun("experts")
    for i, name in enumerate(columns["name"]):
        block, _, rest = name.partition(".experts.")
        expert, _, matrix = rest.partition(".")
        found[block, expert][matrix] = {key: column[i] for key, column in columns.items()}
    return found


def curvature_terms(point):
    return {expert: sum(row["curvature_term_nats"] for row in rows.values()) for expert, rows in experts_of(point).items()}


@claim("mixture (every expert)", "The decay hurts every expert, not a few.", NEW,
       "d'Hd / 2 of each expert's two matrices under 3-bit GPTQ is at the end at least 1.25 times its mean over as many steps before the decay.")
def hurts_every_expert(s, runs):
    end, onset = runs.points(MIXTURE)[-1], s.mixture_run - mixture_decay(s)
    before = [curvature_terms(point) for point in runs.points(MIXTURE) if onset - mixture_decay(s) < point["step"] <= onset]
    means = {expert: mean([terms[expert] for terms in before]) for expert in curvature_terms(end)}
    if min(means.values()) <= 0:
        raise NotRun("a factor")  # there is none from a block that was not convex
    factors = [ratio(term, means[expert]) for expert, term in curvature_terms(end).items()]
    return all(factor >= SAME for factor in factors), {
        "least factor": min(factors), "median": statistics.median(factors), "largest": max(factors),
        "experts below 1.25": sum(not factor >= SAME for factor in factors), "experts": len(factors)}


def by_use(point, group_of, value):
    """The mean over groups of experts of Spearman's correlation of their calibration rows and a value. `group_of(block, matrix)` names the group;
    `value` takes the rows of an expert in it."""
    groups = collections.defaultdict(list)
    for (block, expert), rows in experts_of(point).items():
        parts = collections.defaultdict(list)
        for matrix, row in rows.items():
            parts[group_of(block, matrix)].append(row)
        for group, members in parts.items():
            groups[group].append((members[0]["tokens"], value(members)))
    return mean([spearman([x for x, _ in pairs], [y for _, y in pairs]) for pairs in groups.values()])


def loads(point):
    """The rows of each expert relative to the mean of its block's experts."""
    rows = collections.defaultdict(list)
    for (block, _), matrices in experts_of(point).items():
        rows[block].append(next(iter(matrices.values()))["tokens"])
    return [count / mean(counts) for counts in rows.values() for count in counts]


def hurts_rare(group_of, value, s, runs):
    end, onset = runs.points(MIXTURE)[-1], runs.at(MIXTURE, s.mixture_run - mixture_decay(s))
    found, load = by_use(end, group_of, value), loads(end)
    return found <= RANKED, {
        "Spearman": found, "at the decay's start": by_use(onset, group_of, value), "least used to the mean": min(load),
        "most used to the mean": max(load), "rows not calibrated %": 100 * quantity("gptq3", "fallback_tokens_ratio")(end)}


claim("mixture (rare, output)", "The less an expert is used, the larger the error of its output.", NEW,
      "Spearman of the calibration rows and the relative output errors under 3-bit GPTQ of the experts of a block and matrix at the end is -0.5 at "
      "most, as the mean over blocks and matrices.")(functools.partial(
          hurts_rare, lambda block, matrix: (block, matrix), lambda rows: rows[0]["output_error_ratio"]))
claim("mixture (rare, loss)", "The less an expert is used, the more loss its error costs for each of its tokens.", NEW,
      "Spearman of the calibration rows and (g'd + d'Hd / 2) / rows of the experts of a block under 3-bit GPTQ at the end is -0.5 at most, as the "
      "mean over blocks.")(functools.partial(
          hurts_rare, lambda block, _: block,
          lambda rows: sum(row["gradient_term_nats"] + row["curvature_term_nats"] for row in rows) / rows[0]["tokens"]))


@claim("mixture (routing)", "After the decay quantization changes more of the router's choices.", NEW,
       "The share of choices that 3-bit GPTQ changes is at the end at least 1.25 times its mean over as many steps before the decay.")
def changes_routing(s, runs):
    shares = {name: quantity(name, "routing_change_ratio") for name in ("gptq3", "gptq4")}
    before, end = runs.before_and_after(MIXTURE, mixture_decay(s), shares["gptq3"])
    before4, end4 = runs.before_and_after(MIXTURE, mixture_decay(s), shares["gptq4"])
    known(ratio(end, before))
    return ratio(end, before) >= SAME, {
        "first checkpoint %": 100 * shares["gptq3"](runs.points(MIXTURE)[0]), "before %": 100 * before, "end %": 100 * end,
        "4 bits before %": 100 * before4, "4 bits end %": 100 * end4}


def predicts(bits, s, runs):
    onset = s.mixture_run - mixture_decay(s)

    def of(run, name):
        predicted, measured = ([quantity(name, key)(point) for point in runs.points(run) if point["step"] > onset]
                               for key in ("predicted_delta_nats", "curvature_batch_delta_nats"))
        return ratio(sum(predicted), sum(measured))

    ours = {name: of(MIXTURE, name) for name in QUANTIZERS[bits]}
    known(*ours.values())
    decay = [point[name]["withheld"] for point in runs.points(MIXTURE) if point["step"] > onset for name in ours]
    return all(abs(value - 1) <= PREDICTED[bits] for value in ours.values()), {
        **ours, **{f"dense {name}": of(DENSE, name) for name in ours}, "withheld %": 100 * mean(decay)}


for bits, share in PREDICTED.items():
    claim(f"mixture (prediction, {bits} bits)", f"g'd + d'Hd / 2 predicts the loss change of a mixture at {bits} bits.", NEW,
          f"For each quantizer of {bits} bits, summed over the checkpoints of the decay, it is within {100 * share:.0f} % of the change measured on "
          "its own batch.")(functools.partial(predicts, bits))
