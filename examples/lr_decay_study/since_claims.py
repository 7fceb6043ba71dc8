"""Claims of work that appeared since the paper, about signals beside E and about what to do instead of a long decay. Importing this module adds them
to claims.CLAIMS. The criteria were fixed before any results were known."""

import functools
import itertools
import math

from claims import AGREES, E3, LOSS, LOSS3, SAME_LOSS, TRACE, TRACKS, NotRun, claim, correlation, quantity
from legs import SHARES, decay_steps, decays, merges, named, rate_below, rate_run, reference
from stats import is_falling, mean, ratio, spearman

NOISE = quantity("noise_nats")


def own_decays(s):
    """{run: (steps, shape)} of the decays that leave the trunk, those over a whole run excepted."""
    return {run: decay for run, decay in decays(s).items() if decay[0] < s.run - s.warmup}


def merge_of(s, decay):
    """The merge that stands for a decay, given as (steps, shape)."""
    return next(run for run, stands_for in merges(s).items() if stands_for == decay)


def one_recipe(s):
    """[(run, step)]: points of the run count after the step. The trunk from the first budget on, as far as the shortest decay contains it, and the
    decays that leave it."""
    shortest = named("linear", s.fractions[0])
    return [(shortest, s.budgets[0] - 1), *((run, s.run - steps) for run, (steps, _) in own_decays(s).items() if run != shortest)]


def all_recipes(s):
    """one_recipe, and the runs with another rate or optimizer from the first budget on, sharpness-aware decays, and merges."""
    onset, start = s.run - decay_steps(s), s.budgets[0] - 1
    return [*one_recipe(s), (rate_run(s, rate_below(s)), start), *((named("muon", rate), start) for rate in s.muon_rates),
            *((named("sam", rho), onset) for rho in s.sam_rhos), *((run, 0) for run in merges(s))]


def tracks_as_trace(signal, s, runs):
    for run in (reference(s), named("linear", s.fractions[0])):
        if all(math.isnan(signal(point)) for point in runs.points(run)):
            raise NotRun(run)
    one, n = correlation(runs, one_recipe(s), signal, E3)
    trace, n_of_trace = correlation(runs, one_recipe(s), TRACE, E3)
    every, n_of_all = correlation(runs, all_recipes(s), signal, E3)
    trace_of_all, _ = correlation(runs, all_recipes(s), TRACE, E3)
    return one >= TRACKS and one >= trace, {
        "Spearman, one recipe": one, "of the trace": trace, "n": n, "n of the trace": n_of_trace, "Spearman, all recipes": every,
        "of the trace, all": trace_of_all, "n of all": n_of_all, "jump in the decay": runs.jump(reference(s), decay_steps(s), signal)}


for name, text, paper, signal in (
        ("noise", "The loss under Gaussian noise of a tenth of each weight's norm", "2605.02105: ordinal", NOISE),
        ("critical sharpness (gradient)", "The critical sharpness along the gradient", "2601.16979: ordinal", quantity("critical_sharpness")),
        ("critical sharpness (error)", "The critical sharpness along the error of 3-bit GPTQ", "not in a paper", quantity("gptq3", "critical_sharpness"))):
    claim(name, f"{text} tracks E, and better than the trace.", paper,
          "Spearman with 3-bit E over the trunk and the decays of one recipe is 0.7 at least, and not below that of the trace.")(
              functools.partial(tracks_as_trace, signal))


def spread(values):
    return max(values) - min(values)


@claim("merge (length)", "How much of the trunk a merge takes matters more than the shape of its weights.", "2507.17634: ordinal",
       "The full-precision losses of linear merges that stand for decays over 5 to 40 % of the run differ by more than those of the three shapes "
       "that stand for a decay over 20 %.")
def length_of_merges(s, runs):
    lengths = {part: runs.end(named("merge-linear", part), LOSS) for part in s.fractions}
    shapes = {shape: runs.end(named(f"merge-{shape}", s.fraction), LOSS) for shape in SHARES}
    return spread(lengths.values()) > spread(shapes.values()), {
        "trunk nats": runs.end("plateau", LOSS), **{f"linear {100 * part:g} % nats": loss for part, loss in lengths.items()},
        **{f"{shape} {100 * s.fraction:g} % nats": loss for shape, loss in shapes.items() if shape != "linear"}}


def with_decays(s, runs, value):
    """[(shape, value of the merge, value of the decay)] of the decays over the part of the reference."""
    same = {run: shape for run, (steps, shape) in own_decays(s).items() if steps == decay_steps(s)}
    return [(shape, runs.end(merge_of(s, (decay_steps(s), shape)), value), runs.end(run, value)) for run, shape in same.items()]


@claim("merge (loss)", "A merge replaces the decay of its shape in full precision.", "2507.17634: merges ahead of decays",
       "For each shape the loss of the merge that stands for a decay over 20 % is less than 1 % above that of the decay.")
def merges_replace_decays(s, runs):
    pairs, trunk = with_decays(s, runs, LOSS), runs.end("plateau", LOSS)
    return all(merge < (1 + SAME_LOSS) * decay for _, merge, decay in pairs), {
        **{f"{shape} merge nats": merge for shape, merge, _ in pairs}, **{f"{shape} decay nats": decay for shape, _, decay in pairs},
        "least share of a decay's gain": min(ratio(trunk - merge, trunk - decay) for _, merge, decay in pairs)}


@claim("merge (3 bits)", "At 3 bits a merge is ahead of the decay of its shape.", "not in a paper",
       "For each shape the 3-bit loss of the merge that stands for a decay over 20 % is below that of the decay.")
def merges_ahead(s, runs):
    pairs = with_decays(s, runs, LOSS3)
    return all(merge < decay for _, merge, decay in pairs), {
        **{f"{shape} merge nats": merge for shape, merge, _ in pairs}, **{f"{shape} decay nats": decay for shape, _, decay in pairs}}


@claim("merge (E)", "Every merge lowers E below that of the trunk.", "not in a paper",
       "3-bit E of each merge, of three shapes and four lengths, is below that of the trunk's weights at the same step.")
def merges_lower_error(s, runs):
    errors, trunk = {run: runs.end_error(run) for run in merges(s)}, runs.end_error("plateau")
    return max(errors.values()) < trunk, {
        "trunk %": 100 * trunk, "mean of the merges %": 100 * mean(list(errors.values())), "largest %": 100 * max(errors.values()),
        **{f"linear {100 * part:g} % %": 100 * errors[named("merge-linear", part)] for part in s.fractions},
        **{f"{shape} {100 * s.fraction:g} % %": 100 * errors[named(f"merge-{shape}", s.fraction)] for shape in SHARES if shape != "linear"}}


@claim("merge (choice)", "The merge to take at 3 bits can be chosen in full precision.", "not in a paper",
       "Spearman of the full-precision loss and the 3-bit loss over the merges of three shapes and four lengths is 0.9 at least.")
def choice_of_merges(s, runs):
    losses, quantized = ({run: runs.end(run, value) for run in merges(s)} for value in (LOSS, LOSS3))
    best = min(losses, key=losses.get)
    found = spearman(list(losses.values()), list(quantized.values()))
    return found >= AGREES, {
        "Spearman": found, "least loss nats": losses[best], "its 3-bit loss nats": quantized[best], "least 3-bit loss nats": min(quantized.values())}


@claim("short", "A shorter decay gives the lower 3-bit loss.", "2605.02105: a short annealing loses less",
       "The 3-bit loss after a linear decay over 5 % of the run is below that after one over 20 %.")
def shorter_decay(s, runs):
    made = {part: named("linear", part) for part in s.fractions}
    quantized = {part: runs.end(run, LOSS3) for part, run in made.items()}
    return quantized[s.fractions[0]] < quantized[s.fraction], {
        **{f"loss {100 * part:g} % nats": runs.end(run, LOSS) for part, run in made.items()},
        **{f"3-bit loss {100 * part:g} % nats": loss for part, loss in quantized.items()},
        **{f"noise {100 * part:g} % nats": runs.end(run, NOISE) for part, run in made.items()}}


def with_rhos(s, runs, value):
    """{rho: value at the end of the decay}; 0: without sharpness-aware minimisation."""
    return {0: runs.end(reference(s), value), **{rho: runs.end(named("sam", rho), value) for rho in s.sam_rhos}}


@claim("SAM (E)", "Sharpness-aware minimisation in the decay lowers E.", "2605.02105: 40 % less damage at 4 bits",
       "3-bit E at the end falls strictly from none to the smaller and to the larger radius.")
def sharpness_aware_error(s, runs):
    errors, signals = with_rhos(s, runs, E3), {"trace": TRACE, "noise": NOISE}
    return is_falling(errors.values()), {
        **{f"E at rho {rho:g} %": 100 * error for rho, error in errors.items()},
        **{f"{name} at rho {rho:g} to that without": ratio(runs.end(named("sam", rho), value), runs.end(reference(s), value))
           for name, value in signals.items() for rho in s.sam_rhos}}


@claim("SAM (3 bits)", "Sharpness-aware minimisation in the decay lowers the 3-bit loss.", "2605.02105: 40 % less damage at 4 bits",
       "The 3-bit loss at the end is lower with the smaller radius than without.")
def sharpness_aware_loss(s, runs):
    losses, quantized = with_rhos(s, runs, LOSS), with_rhos(s, runs, LOSS3)
    return quantized[s.sam_rhos[0]] < quantized[0], {
        **{f"loss at rho {rho:g} nats": loss for rho, loss in losses.items()},
        **{f"3-bit loss at rho {rho:g} nats": loss for rho, loss in quantized.items()}}


@claim("Muon", "At equal loss Muon has a lower E than AdamW.", "2506.19697: Muon degrades less",
       "3-bit E at the end is lower with Muon in each pair of a Muon and an AdamW run whose losses differ by less than 1 %, of which there is one "
       "at least.")
def muon_at_equal_loss(s, runs):
    muon = {f"Muon {rate:g}": named("muon", rate) for rate in s.muon_rates}
    adamw = {f"AdamW {rate:g}": rate_run(s, rate) for rate in (rate_below(s), s.peak)}
    ends = {name: (runs.end(run, LOSS), runs.end_error(run), runs.end(run, TRACE)) for name, run in (muon | adamw).items()}
    pairs = [(ours, theirs) for ours, theirs in itertools.product(muon, adamw)
             if abs(ends[ours][0] - ends[theirs][0]) < SAME_LOSS * min(ends[ours][0], ends[theirs][0])]
    lower = sum(ends[ours][1] < ends[theirs][1] for ours, theirs in pairs)
    return 0 < len(pairs) == lower, {
        **{f"loss {name} nats": loss for name, (loss, _, _) in ends.items()}, **{f"E {name} %": 100 * error for name, (_, error, _) in ends.items()},
        **{f"trace {name}": trace for name, (_, _, trace) in ends.items()}, "pairs of equal loss": len(pairs), "of them with Muon lower": lower}
