"""Claims about when a decay of the learning rate helps a model that will be quantized: over bits, budgets, peaks, lengths, final rates and optimizers.
Importing this module adds them to claims.CLAIMS. The criteria were fixed before any results were known, those of "progress" and "turn" before any of the
peaks that they are about."""

import functools
import itertools
import math
import types

from claims import LOSS, TRACE, TRACKS, NotRun, Runs, claim, error, quantity
from legs import help_run, help_trunk
from stats import is_rising, mean, ratio, spearman, standard_deviation

NEW = "not in the paper"
PAIRS = "Parameter Golf: a longer decay or a lower final rate cut the loss by quantization, .014 to .005 and .007 to .0034"
QUANTIZERS = ("rtn8", "rtn6", "rtn4", "gptq4", "gptq3")
EXPLAINED = 0.9  # the least share of changes whose sign d'Hd / 2 tells
TOLD = 0.8  # the least share of changes whose sign the loss tells


def gap(quantizer):
    """CE(W_hat) - CE(W) in nats."""
    loss = quantity(quantizer, "loss_nats")
    return lambda point: loss(point) - LOSS(point)


def squared(quantizer):
    """d'd, the squared length of a quantizer's error."""
    length = quantity(quantizer, "displacement_norm")
    return lambda point: length(point)**2


def curvature_term(quantizer):
    """d'Hd / 2 in nats."""
    curvature = quantity(quantizer, "curvature_along_error")
    return lambda point: squared(quantizer)(point) * curvature(point) / 2


class Cells:
    """One seed's runs by cell: (recipe, peak, budget). A cell counts if every seed has all of its runs."""

    def __init__(self, s, runs):
        self.s, self.runs = s, runs
        self.variants = list(itertools.product(s.help_parts, s.help_finals))
        self.long, self.zero = s.help_parts[-1], s.help_finals[0]
        self.cells = [cell for cell in itertools.product(map(tuple, s.help_recipes), s.help_rates, s.help_budgets)
                      if all(f"s{seed}.{run}" in runs.runs for seed in range(s.seeds)
                             for run in (help_trunk(*cell[:2]), *(help_run(*cell, *variant) for variant in self.variants)))]
        if not self.cells:
            raise NotRun("a cell")
        self.rates, self.budgets = ([value for value in values if any(value in cell for cell in self.cells)]
                                    for values in (s.help_rates, s.help_budgets))

    def constant(self, cell, value):
        return known(value(self.runs.at(help_trunk(*cell[:2]), cell[2])))

    def end(self, cell, value, part=None, final=None):
        """By default, of the longest decay to zero."""
        return known(self.runs.end(help_run(*cell, part or self.long, self.zero if final is None else final), value))

    def sums(self, value, *wanted):
        """(sum over the cells at a constant rate, sum at the end of the decay) of the cells with all of `wanted`, which are peaks and budgets."""
        cells = [cell for cell in self.cells if set(wanted) <= set(cell)]
        if not cells:
            raise NotRun(str(wanted))
        return sum(self.constant(cell, value) for cell in cells), sum(self.end(cell, value) for cell in cells)

    def factor(self, value, *wanted):
        before, after = self.sums(value, *wanted)
        return ratio(after, before)


def known(value):
    if not math.isfinite(value):
        raise NotRun("a number that was not measured")
    return value


def counted(cells, changes):
    return {"cells": len(cells.cells), "comparisons": len(changes), "of them up": sum(change > 0 for change in changes)}


def decay_raises(value, unit, s, runs):
    cells = Cells(s, runs)
    changes = [cells.end(cell, value) - cells.constant(cell, value) for cell in cells.cells]
    return all(change > 0 for change in changes), {
        **counted(cells, changes),
        **{f"{budget} steps, {rate:g}: {name}{unit}": (100 if unit == " %" else 1) * total / sum(rate in cell and budget in cell for cell in cells.cells)
           for budget, rate in itertools.product(cells.budgets, cells.rates)
           for name, total in zip(("constant", "decayed"), cells.sums(value, budget, rate))}}


def decay_ships(quantizer, s, runs):
    cells, value = Cells(s, runs), quantity(quantizer, "loss_nats")
    changes = [cells.end(cell, value) - cells.constant(cell, value) for cell in cells.cells]
    return all(change < 0 for change in changes), {
        **counted(cells, changes), "change nats": mean(changes),
        "share of the gain that the gap takes %": 100 * ratio(
            sum(cells.end(cell, gap(quantizer)) - cells.constant(cell, gap(quantizer)) for cell in cells.cells),
            sum(cells.constant(cell, LOSS) - cells.end(cell, LOSS) for cell in cells.cells))}


def cuts_where_short_and_high(quantizer, s, runs):
    cells = Cells(s, runs)
    chosen = [cell for cell in cells.cells if cell[1:] == (s.help_rates[-1], s.help_budgets[0])]
    if not chosen:
        raise NotRun("a cell")
    pairs = [(cells.constant(cell, gap(quantizer)), cells.end(cell, gap(quantizer))) for cell in chosen]
    return all(after < before for before, after in pairs), {
        f"{recipe[0]}, weight decay {recipe[1]:g}: {name} nats": value
        for (recipe, _, _), pair in zip(chosen, pairs) for name, value in zip(("constant", "decayed"), pair)}


def hurts_less(quantizer, index, s, runs):
    """Whether the factor of E is smaller with the wanted budget (index 0) or peak (index 1) at each of the others."""
    cells, value = Cells(s, runs), error(quantizer)
    wanted, other = ((s.help_budgets[0], s.help_budgets[-1]), (s.help_rates[-1], s.help_rates[0]))[index]
    rest = (cells.rates, cells.budgets)[index]
    factors = {(key, of): cells.factor(value, key, of) for of in rest for key in (wanted, other)}
    return all(factors[wanted, of] < factors[other, of] for of in rest), {f"factor {of:g}, {key:g}": found for (key, of), found in factors.items()}


def optimizer_matters(quantizer, s, runs):
    cells, value = Cells(s, runs), error(quantizer)
    muon, adamw = ("muon", s.weight_decay), ("adamw", s.weight_decay)
    factors = {(recipe, rate): cells.factor(value, recipe, rate) for recipe in dict.fromkeys([adamw, muon, *map(tuple, s.help_recipes)])
               for rate in cells.rates}
    return all(factors[muon, rate] < factors[adamw, rate] for rate in cells.rates), {
        f"factor {name}, weight decay {decay:g}, {rate:g}": found for ((name, decay), rate), found in factors.items()}


def over_pairs(value, pairs_of, s, runs):
    """Whether the first of each pair of a cell's runs is below the second. `pairs_of(s, cells, cell, value)` gives the pairs."""
    cells = Cells(s, runs)
    pairs = [pair for cell in cells.cells for pair in pairs_of(s, cells, cell, value)]
    if not pairs:
        raise NotRun("a pair")
    return all(a < b for a, b in pairs), {**counted(cells, [b - a for a, b in pairs]), "first to second": ratio(*map(sum, zip(*pairs)))}


def by_length(s, cells, cell, value):
    yield cells.end(cell, value, s.help_parts[0]), cells.end(cell, value, s.help_parts[-1])


def by_final(s, cells, cell, value):
    for part in s.help_parts:
        yield cells.end(cell, value, part, s.help_finals[-1]), cells.end(cell, value, part, s.help_finals[0])


def by_peak(s, cells, cell, value):
    recipe, rate, budget = cell
    if rate == s.help_rates[0] and (recipe, s.help_rates[-1], budget) in cells.cells:
        yield tuple(cells.end((recipe, peak, budget), value, s.help_parts[0]) for peak in (s.help_rates[0], s.help_rates[-1]))


def chosen_by_loss(quantizer, s, runs):
    cells, value = Cells(s, runs), quantity(quantizer, "loss_nats")
    right, regret = 0, []
    for cell in cells.cells:
        made = [(cells.constant(cell, LOSS), cells.constant(cell, value)),
                *((cells.end(cell, LOSS, *variant), cells.end(cell, value, *variant)) for variant in cells.variants)]
        regret.append(min(made)[1] - min(quantized for _, quantized in made))
        right += regret[-1] == 0
    return right == len(cells.cells), {"cells": len(cells.cells), "of them right": right, "mean regret nats": mean(regret), "largest nats": max(regret)}


def parts_tell(quantizer, s, runs):
    """Whether d'Hd / 2 tells the sign of the gap's change, in EXPLAINED of all decays of all cells."""
    cells, counts = Cells(s, runs), {"told": 0, "by d'd alone": 0, "by d'Hd / d'd alone": 0}
    signals = (curvature_term(quantizer), squared(quantizer), quantity(quantizer, "curvature_along_error"))
    for cell, variant in itertools.product(cells.cells, cells.variants):
        def sign(value):
            return cells.end(cell, value, *variant) > cells.constant(cell, value)
        for name, signal in zip(counts, signals):
            counts[name] += sign(signal) == sign(gap(quantizer))
    number = len(cells.cells) * len(cells.variants)
    return counts["told"] >= EXPLAINED * number, {
        "decays": number, **counts, "factor of d'd": cells.factor(squared(quantizer)),
        "factor of d'Hd": cells.factor(curvature_term(quantizer)), "factor of the gap": cells.factor(gap(quantizer))}


def signal_tells(signal, direction, s, runs):
    """Whether a number of the constant rate's report ranks the cells by what the decay does to E."""
    cells = Cells(s, runs)
    if len(cells.cells) < 4:
        raise NotRun("cells to rank")
    before = [cells.constant(cell, signal) for cell in cells.cells]
    found = {name: spearman(before, [ratio(cells.end(cell, error(name)), cells.constant(cell, error(name))) for cell in cells.cells])
             for name in QUANTIZERS}
    return direction * found["rtn4"] >= TRACKS and direction * found["gptq3"] >= TRACKS, {**found, "n": len(cells.cells)}


def later(s, runs):
    """The Cells that were run after the claims about progress were written: those at the peaks between the ends, and beyond them."""
    found = []
    for rates in (s.help_rates[1:-1], s.help_beyond):
        try:
            found.append(Cells(types.SimpleNamespace(**vars(s) | {"help_rates": rates}), runs))
        except NotRun:
            continue
    if not found:
        raise NotRun("a later peak")
    return found


def goes_with_progress(quantizer, s, runs):
    def ends(value):
        return [found for cells in later(s, runs) for cell in cells.cells
                for found in (cells.constant(cell, value), *(cells.end(cell, value, *variant) for variant in cells.variants))]
    found = {name: spearman(ends(LOSS), ends(error(name))) for name in QUANTIZERS}
    return found[quantizer] <= -TRACKS, {**found, "n": len(ends(LOSS))}


def progress_tells(quantizer, s, runs):
    changes = [[cells.end(cell, value, *variant) - cells.constant(cell, value) for value in (LOSS, error(quantizer))]
               for cells in later(s, runs) for cell in cells.cells for variant in cells.variants]
    fallen, risen = ([rise > 0 for fall, rise in changes if (fall < 0) == wanted] for wanted in (True, False))
    return fallen.count(True) + risen.count(False) >= TOLD * len(changes), {
        "decays": len(changes), "of falling loss": len(fallen), "whose E rises": sum(fallen), "of rising loss": len(risen),
        "whose E falls": risen.count(False)}


for quantizer in QUANTIZERS:
    claim(f"help (E, {quantizer})", "A decay raises E.", "3 and 4 bits: it does",
          "E at the end of the longest decay to zero is above that at the constant rate at the same step in every cell.")(
              functools.partial(decay_raises, error(quantizer), " %"))
    claim(f"help (gap, {quantizer})", "A decay raises the gap in nats.", NEW,
          "CE(W_hat) - CE(W) at the end of the longest decay to zero is above that at the constant rate at the same step in every cell.")(
              functools.partial(decay_raises, gap(quantizer), " nats"))
    claim(f"help (ships, {quantizer})", "A decay lowers the quantized loss.", NEW,
          "CE(W_hat) at the end of the longest decay to zero is below that at the constant rate at the same step in every cell.")(
              functools.partial(decay_ships, quantizer))
    claim(f"help (short and high, {quantizer})", "After a short training at a high rate a decay cuts the gap.", PAIRS,
          "CE(W_hat) - CE(W) at the end of the longest decay to zero is below that at the constant rate, at the smaller budget and higher peak, with "
          "every optimizer.")(functools.partial(cuts_where_short_and_high, quantizer))
    claim(f"help (budget, {quantizer})", "A decay hurts less after a short training.", PAIRS,
          "The factor of E (its sum over the optimizers at the end of the longest decay to zero, to that at the constant rate) is smaller for the "
          "smaller budget at each peak.")(functools.partial(hurts_less, quantizer, 0))
    claim(f"help (peak, {quantizer})", "A decay hurts less from a high rate.", PAIRS,
          "The factor of E (its sum over the optimizers at the end of the longest decay to zero, to that at the constant rate) is smaller for the "
          "higher peak at each budget.")(functools.partial(hurts_less, quantizer, 1))
    claim(f"help (optimizer, {quantizer})", "A decay hurts less with Muon than with AdamW.", NEW,
          "The factor of E (its sum over the budgets at the end of the longest decay to zero, to that at the constant rate) is smaller with Muon than "
          "with AdamW, both with a weight decay of 0.1, at each peak.")(functools.partial(optimizer_matters, quantizer))
    claim(f"help (length, {quantizer})", "A longer decay raises E.", "3 bits: it does",
          "E after the longest decay to zero is above that after the shortest in every cell.")(
              functools.partial(over_pairs, error(quantizer), by_length))
    claim(f"help (length ships, {quantizer})", "A shorter decay gives the lower quantized loss.", NEW,
          "CE(W_hat) after the shortest decay to zero is below that after the longest in every cell.")(
              functools.partial(over_pairs, quantity(quantizer, "loss_nats"), by_length))
    claim(f"help (final, {quantizer})", "Ending at a tenth of the peak leaves a lower E than ending at zero.", NEW,
          "E after the decay to a tenth of the peak is below that after the decay to zero of the same length, in every cell and for every length.")(
              functools.partial(over_pairs, error(quantizer), by_final))
    claim(f"help (final ships, {quantizer})", "Ending at a tenth of the peak gives the lower quantized loss.", NEW,
          "CE(W_hat) after the decay to a tenth of the peak is below that after the decay to zero of the same length, in every cell and for every "
          "length.")(functools.partial(over_pairs, quantity(quantizer, "loss_nats"), by_final))
    claim(f"help (lower peak, {quantizer})", "A lower peak gives the lower gap.", "3 and 4 bits: the higher E",
          "CE(W_hat) - CE(W) after the shortest decay to zero is at the lower peak below that at the higher one, with every optimizer at every "
          "budget.")(functools.partial(over_pairs, gap(quantizer), by_peak))
    claim(f"help (choice, {quantizer})", "The full-precision loss chooses the schedule that is best once quantized.", NEW,
          "In every cell the schedule of least CE(W), of the constant rate and all decays, has the least CE(W_hat).")(
              functools.partial(chosen_by_loss, quantizer))
    claim(f"help (parts, {quantizer})", "d'Hd / 2 tells whether a decay raises the gap.", NEW,
          "For at least 90 % of all decays of all cells, d'Hd / 2 rises over that at the constant rate if and only if the gap does.")(
              functools.partial(parts_tell, quantizer))


@claim("help (bits)", "The fewer the bits, the more a decay raises E.", NEW,
       "The factor of E of RTN, the sum over the cells at the end of the longest decay to zero to that at the constant rate, rises strictly from 8 to "
       "6 and 4 bits.")
def by_bits(s, runs):
    cells = Cells(s, runs)
    factors = {name: cells.factor(error(name)) for name in QUANTIZERS}
    return is_rising([factors[name] for name in ("rtn8", "rtn6", "rtn4")]), factors


for name, text, signal, direction in (
        ("E", "E of 4-bit RTN", error("rtn4"), -1), ("step", "The length of the error of 8-bit RTN, which is that of its steps,",
                                                     quantity("rtn8", "displacement_norm"), -1),
        ("noise", "The loss under Gaussian noise", quantity("noise_nats"), -1), ("trace", "The trace of the Hessian", TRACE, 1),
        ("edge", "The top eigenvalue times the rate", lambda point: quantity("top_eigenvalue")(point) * point["learning_rate"], -1)):
    claim(f"help (signal, {name})", f"{text} at the constant rate tells what a decay does to E.", NEW,
          "Spearman over the cells with the factor of E in the longest decay to zero, for 4-bit RTN and for 3-bit GPTQ, is " +
          ("0.7 at least." if direction > 0 else "-0.7 at most."))(functools.partial(signal_tells, signal, direction))


for quantizer in ("rtn4", "gptq4", "gptq3"):
    claim(f"help (progress, {quantizer})", "E goes with how far the training has come, whatever the schedule.", NEW,
          "At the peaks between the lowest and the highest, and beyond: Spearman of CE(W) and E over the constant rate and all decays of all cells is "
          "-0.7 at most.")(functools.partial(goes_with_progress, quantizer))
    claim(f"help (turn, {quantizer})", "A decay lowers E if and only if it holds the training back.", NEW,
          "At the peaks between the lowest and the highest, and beyond: E rises in a decay if CE(W) falls in it, and falls if not, for at least 80 % of "
          "all decays of all cells.")(functools.partial(progress_tells, quantizer))


def by_seed(s, results_runs):
    """The Cells of each seed; empty if no cell was run."""
    try:
        return [Cells(s, Runs(results_runs, seed)) for seed in range(s.seeds)]
    except NotRun:
        return []


def spread(values, factor=1, digits=2):
    values = [factor * value for value in values]
    return f"{mean(values):.{digits}f} ± {standard_deviation(values):.{digits}f}"


def agreeing(seeds, chosen, variant, value):
    """Of the cells `chosen`, those in which a decay raises a value with every seed, and those in which it lowers it with every seed."""
    signs = [{cells.end(cell, value, *variant) > cells.constant(cell, value) for cells in seeds} for cell in chosen]
    return signs.count({True}), signs.count({False})


def row_of(seeds, chosen, variant):
    """The entries of a table for some cells: the fall of CE(W), and for each quantizer the rise of the gap in mean over the cells, the factor of E, and
    the numbers of cells whose E rises and falls with every seed. In thousandths of a nat."""
    def sums(value):
        return [(sum(cells.constant(cell, value) for cell in chosen), sum(cells.end(cell, value, *variant) for cell in chosen)) for cells in seeds]

    def change(value):
        return [(after - before) / len(chosen) for before, after in sums(value)]
    row = [spread([-fall for fall in change(LOSS)], 1000, 0)]
    for name in QUANTIZERS:
        up, down = agreeing(seeds, chosen, variant, error(name))
        row.append(f"{spread(change(gap(name)), 1000)}; {spread([ratio(after, before) for before, after in sums(error(name))])}; {up}/{down}")
    return row


def table(s, results_runs):
    """Markdown: what decays do to groups of cells and to each cell, those with peaks that decide no claim included. Empty if no cell was run."""
    seeds = by_seed(s, results_runs)
    if not seeds:
        return ""
    cells, longest = seeds[0].cells, (seeds[0].long, seeds[0].zero)
    head = ["cells", "decay, final rate", "CE(W) falls", *QUANTIZERS]
    lines = [head, ["---"] * len(head)]
    for budget, variant in itertools.product(seeds[0].budgets, seeds[0].variants):
        chosen = [cell for cell in cells if cell[2] == budget]
        lines.append([f"{budget} steps: {len(chosen)}", "{:g}, {:g}".format(*variant), *row_of(seeds, chosen, variant)])
    beyond = by_seed(types.SimpleNamespace(**vars(s) | {"help_rates": s.help_beyond}), results_runs)
    for some in filter(None, (seeds, beyond)):
        for budget, rate in itertools.product(some[0].budgets, some[0].rates):
            chosen = [cell for cell in some[0].cells if cell[1:] == (rate, budget)]
            if chosen:
                lines.append([f"{budget} steps, {rate:g}: {len(chosen)}", "{:g}, {:g}".format(*longest), *row_of(some, chosen, longest)])
        for cell in some[0].cells:
            lines.append(["{} {:g}, {:g}, {} steps".format(*cell[0], *cell[1:]), "{:g}, {:g}".format(*longest), *row_of(some, [cell], longest)])
    return ("\n## When a decay helps\n\nThe fall of CE(W) and the rise of the gap in thousandths of a nat; the factor of E; cells in which E rises / falls "
            "with every seed.\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in lines))
