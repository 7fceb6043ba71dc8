"""The training plan of the learning-rate decay study: the settings of its scales, its runs, and their legs."""

import dataclasses
import itertools
import math
import types

# The parts of a study that --only can select, the most important first.
GROUPS = ("budget", "rate", "average", "shape", "weight_decay", "cosine", "since", "mixture", "help")
# Gives each member of a soup other batches than the other members and the trunk.
MEMBER_STREAM = 0x5851F42D4C957F2D
# The cost of a measurement in training steps, for estimating the time left.
STEPS_PER_MEASUREMENT = 300
# The quantizers of a study that leaves out the other number formats.
INTEGERS = ["rtn3", "rtn4", "gptq3", "gptq4"]
# The runs of the part `mixture`.
MIXTURE, DENSE = "mixture", "dense"
SHARES = {  # of the peak rate, by the share of the decay that is left
    "linear": lambda left: left,
    "cosine": lambda left: 0.5 * (1 + math.cos(math.pi * (1 - left))),
    "sqrt": lambda left: 1 - math.sqrt(1 - left),
}

# Two studies with equal settings give equal results on the same machine. Lengths are in optimizer steps.
FULL = {
    "scale": "full", "seeds": 3, "text_sha256": "",
    # The model and its batches (examples/char_gpt's MLP).
    "width": 64, "layers": 3,
    "length": 64,  # predictions per sequence
    "batch": 8,  # sequences per step
    "weight_decay": 0.1,
    "peak": 1e-2,  # learning rate of the plateau
    # The measurements. Quantizers are short names of reports; formats with blocks of their own ignore the group size.
    "quantizers": [*INTEGERS, "rtn-mxfp4", "rtn-nvfp4", "gptq-mxfp4", "gptq-nvfp4", "gptq-fp8_e4m3",
                   "gptq4-int-h64", "gptq-mxfp4-h32"],
    "group_size": 64, "probe_sequences": 1024, "calibration_sequences": 128,
    "every": 400,  # steps between measurements, and between saved weights
    # The runs.
    "warmup": 300,
    "leg": 8000,  # maximum number of steps without saving the state
    "budgets": [4000, 8000, 16000, 32000],  # ends of the short cooldowns
    "cooldown": 2000,  # the length of each cooldown
    "run": 16000,  # the length of every other run
    "rates": [1e-3, 3e-3, 1e-2, 2e-2],  # peaks of the sweep, ascending; `peak` is one of them
    "decays": [0.03, 0.1, 0.3],  # weight decays, ascending; `weight_decay` is one of them
    "fractions": [0.05, 0.1, 0.2, 0.4],  # shares of a run over which the rate decays, ascending
    "fraction": 0.2,  # the share used in all other comparisons; one of `fractions`
    "cosines": [4000, 8000, 16000],  # lengths of runs with a cosine schedule, `run` among them
    "window": 10,  # number of weights in an average, `every` steps apart
    "average_every": 1600,  # steps between measured averages
    "soup": 3,  # number of cooldowns in the average
    "muon_rates": [3e-3, 1e-2],  # peaks of the runs with Muon, ascending
    "sam_rhos": [0.05, 0.2],  # radii of sharpness-aware minimisation in a decay, ascending
    # The GPT with a mixture of experts, and the dense one beside it. Up to seven experts have rows of their own in a report.
    "mixture_run": 8000, "mixture_width": 64, "mixture_layers": 2, "experts": 6,
    "mixture_quantizers": [*INTEGERS, "gptq-mxfp4", "gptq-nvfp4"],  # those of them that are in `quantizers`
    # When a decay helps: decays that leave trunks of several recipes, after a short and a long training.
    "help_recipes": [["adamw", 0.1], ["muon", 0], ["muon", 0.1]],  # optimizers, each with a weight decay
    "help_rates": [3e-3, 1e-2, 3e-2],  # peaks, ascending
    "help_beyond": [0.1],  # a peak at which only the first budget is run; its runs decide no claim
    "help_budgets": [450, 4500],  # ascending multiples of 45, so that decays to a tenth of the peak have whole numbers of steps
    "help_parts": [0.2, 0.8],  # shares of a budget over which the rate decays, ascending
    "help_finals": [0, 0.1],  # the rate at the end, as a share of the peak
    "help_warmup": 60,
    "help_quantizers": ["rtn8", "rtn6", "rtn4", "gptq4", "gptq3"],  # a scale for each row
}
SCALES = {
    "full": FULL,  # evidence
    # Most of the runs, a fifth as long and with one seed, to test the machinery.
    "quick": FULL | {
        "scale": "quick", "seeds": 1, "probe_sequences": 256, "every": 160, "warmup": 100, "leg": 1600, "budgets": [800, 1600, 3200, 6400],
        "cooldown": 320, "run": 3200, "rates": [3e-3, 1e-2, 2e-2], "decays": [0.1, 0.3], "cosines": [3200], "window": 5, "average_every": 640,
        "soup": 2, "mixture_run": 800, "mixture_width": 32, "mixture_layers": 1, "help_recipes": [["muon", 0]],
        "help_rates": [3e-3, 3e-2], "help_beyond": [], "help_budgets": [180, 900], "help_warmup": 20},
    # Takes seconds, for tests.
    "tiny": FULL | {
        "scale": "tiny", "seeds": 1, "width": 16, "layers": 1, "probe_sequences": 64, "calibration_sequences": 32, "every": 4,
        "warmup": 2, "leg": 40, "budgets": [40, 160], "cooldown": 12, "run": 80, "rates": [3e-3, 1e-2], "decays": [0.1, 0.3],
        "cosines": [80], "window": 2, "average_every": 16, "mixture_run": 20, "mixture_width": 16, "mixture_layers": 1,
        "experts": 4, "help_recipes": [["muon", 0]], "help_rates": [1e-2], "help_beyond": [], "help_budgets": [45], "help_warmup": 2},
}


def settings_of(scale, **others):
    return types.SimpleNamespace(**SCALES[scale] | others)


def named(what, value):
    return f"{what}-{value:.12g}"


def reference(s):
    """The run with which the others are compared: `run` steps with the default rate, weight decay and linear decay."""
    return named("linear", s.fraction)


def rate_run(s, rate):
    return reference(s) if rate == s.peak else named("rate", rate)


def rate_below(s):
    """The rate of the sweep next below the plateau's."""
    return max(rate for rate in s.rates if rate < s.peak)


def weight_decay_run(s, weight_decay):
    return reference(s) if weight_decay == s.weight_decay else named("decay", weight_decay)


def decay_steps(s, part=None):
    """The steps of a decay over a part of a run; by default, the reference's part."""
    return round((part or s.fraction) * s.run)


def decays(s):
    """{run: (steps, shape)} of the decays that end after `run` steps."""
    last, whole = decay_steps(s), s.run - s.warmup
    return {**{named("linear", part): (decay_steps(s, part), "linear") for part in s.fractions},
            "sqrt": (last, "sqrt"), "tail": (last, "cosine"), "line": (whole, "linear"), named("cosine", s.run): (whole, "cosine")}


def merges(s):
    """{run: (steps, shape)} of the merges that stand for decays that end after `run` steps."""
    return {named(f"merge-{shape}", part): (decay_steps(s, part), shape) for shape in SHARES for part in s.fractions}


def mixture_decay(s):
    """The steps of the decay of the runs of the part `mixture`."""
    return round(s.fraction * s.mixture_run)


def help_trunk(recipe, rate):
    """The run at a constant rate with (optimizer, weight decay)."""
    return f"help-{recipe[0]}-{recipe[1]:g}-{rate:g}"


def help_run(recipe, rate, budget, part, final):
    """The run that leaves the trunk for a linear decay over a part of the budget, to a share of the peak."""
    return f"{help_trunk(recipe, rate)}-{budget}-{part:g}-{final:g}"


@dataclasses.dataclass
class Leg:
    """A piece of work that is done completely or not at all: training from one saved state to another, or measuring means of saved weights. Its
    directory holds the run's journal up to the leg's end."""
    id: str  # directory name
    run: str  # the run to which it belongs
    groups: tuple
    needs: list  # ids of legs that must finish first
    flags: dict  # for the program that makes it
    work: float  # in training steps
    parent: str = ""  # the leg whose state and journal it continues
    means: dict = dataclasses.field(default_factory=dict)  # {step: [(id of a leg, step of its weights)]}


class SeedPlan:
    """The legs of one seed. A method for each of GROUPS adds the group's legs."""

    def __init__(self, s, seed):
        self.s, self.seed, self.legs = s, seed, []
        self.trunk = []

    def id(self, run, step):
        return f"s{self.seed}.{run}@{step:06d}"

    def add(self, run, groups, steps, decay=0, shape="linear", start=0, rate=None, weight_decay=None, cuts=(), batch_seed=None, keep=False,
            more=None, trunk="trunk", to=None):
        """Adds a run, cut where others leave it and where a leg would become too long; with `to`, only its beginning up to that step. Returns the
        id of its last leg."""
        s = self.s
        last = to or steps
        parent = self.id(trunk, start) if start else ""
        flags = {"--schedule": "wsd" if decay else "constant", "--steps": steps, "--warmup": s.warmup, "--lr": rate or s.peak,
                 "--decay-fraction": decay / steps, "--decay-shape": shape, "--weight-decay": weight_decay or s.weight_decay,
                 "--seed": self.seed, "--every": s.every, **(more or {})}
        if batch_seed is not None:
            flags["--batch-seed"] = batch_seed
        while start < last:
            end = min([last, start + s.leg, *(cut for cut in cuts if cut > start)])
            leg = Leg(self.id(run, end), f"s{self.seed}.{run}", groups, [parent] if parent else [], flags | {"--from": start, "--to": end},
                      end - start + STEPS_PER_MEASUREMENT * ((end - start) // s.every), parent)
            if keep:
                leg.flags["--keep-weights"] = True
            flags.pop("--batch-seed", None)
            self.legs.append(leg)
            parent, start = leg.id, end
        return parent

    def branch(self, run, groups, steps, decay, shape="linear", batch_seed=None, more=None):
        """Adds a run that leaves the trunk where its own rate begins to decay."""
        return self.add(run, groups, steps, decay, shape, start=steps - decay, batch_seed=batch_seed, more=more)

    def kept(self):
        """{step: id of the leg of the trunk that keeps the weights of the step}"""
        return {step: leg.id for leg in self.trunk for step in range(leg.flags["--from"] + 1, leg.flags["--to"] + 1)}

    def add_means(self, run, groups, means, shape=None):
        """Adds a leg that measures, for each step of `means`, the mean of saved weights; with a `shape`, the merge that stands for a decay of that
        shape (arXiv 2507.17634)."""
        needs = list(dict.fromkeys(leg for members in means.values() for leg, _ in members))
        name = f"s{self.seed}.{run}"
        flags = {"--seed": self.seed, "--lr": self.s.peak, "--every": 1}
        if shape:
            flags["--mean-shape"] = shape
        self.legs.append(Leg(name, name, groups, needs, flags, STEPS_PER_MEASUREMENT * len(means), means=means))

    def budget(self):
        """The trunk (the longest run, at a constant rate), its cooldowns, and the reference."""
        s = self.s
        cuts = [budget - s.cooldown for budget in s.budgets] + [s.run - decay_steps(s, part) for part in s.fractions] + [s.run]
        self.add("trunk", ("budget",), s.budgets[-1], cuts=cuts, keep=True)
        self.trunk = list(self.legs)
        for budget in s.budgets:
            self.branch(named("cooldown", budget), ("budget",), budget, s.cooldown)
        self.branch(reference(s), ("rate", "average", "shape", "weight_decay", "cosine", "since"), s.run, decay_steps(s))

    def rate(self):
        for rate in self.s.rates:
            if rate != self.s.peak:
                groups = ("rate", "since") if rate == rate_below(self.s) else ("rate",)
                self.add(rate_run(self.s, rate), groups, self.s.run, decay_steps(self.s), rate=rate)

    def average(self):
        """Means of the trunk's last `window` weights (LAWA), and of the ends of cooldowns with other batches (a soup)."""
        s = self.s
        kept = self.kept()
        self.add_means("average", ("average",), {
            step: [(kept[member], member) for member in range(step - (s.window - 1) * s.every, step + 1, s.every)]
            for step in range(s.average_every, s.budgets[-1] + 1, s.average_every) if step >= s.window * s.every})
        members = [self.id(reference(s), s.run)]
        for i in range(1, s.soup):
            members.append(self.branch(named("member", i), ("average",), s.run, decay_steps(s),
                                       batch_seed=(MEMBER_STREAM * i + self.seed) % 2**64))
        self.add_means("soup", ("average",), {s.run: [(member, s.run) for member in members]})

    def shape(self):
        s = self.s
        for run, (steps, shape) in decays(s).items():
            if run == reference(s):
                continue
            if steps < s.run - s.warmup:
                self.branch(run, ("shape", "since"), s.run, steps, shape)
            else:
                self.add(run, ("shape", "cosine") if run == named("cosine", s.run) else ("shape",), s.run, steps, shape)

    def weight_decay(self):
        for weight_decay in self.s.decays:
            if weight_decay != self.s.weight_decay:
                self.add(weight_decay_run(self.s, weight_decay), ("weight_decay",), self.s.run, decay_steps(self.s), weight_decay=weight_decay)

    def cosine(self):
        for steps in self.s.cosines:
            if steps != self.s.run:
                self.add(named("cosine", steps), ("cosine",), steps, steps - self.s.warmup, "cosine")

    def since(self):
        """Muon; sharpness-aware minimisation in the decay; merges of the trunk's weights that stand for decays, and the weights at their end."""
        s = self.s
        for rate in s.muon_rates:
            self.add(named("muon", rate), ("since",), s.run, decay_steps(s), rate=rate, more={"--optimizer": "muon"})
        for rho in s.sam_rhos:
            self.branch(named("sam", rho), ("since",), s.run, decay_steps(s), more={"--sam-rho": rho})
        kept = self.kept()
        self.add_means("plateau", ("since",), {s.run: [(kept[s.run], s.run)]})
        for run, (steps, shape) in merges(s).items():
            members = range(s.run - steps + s.every, s.run + 1, s.every)
            self.add_means(run, ("since",), {s.run: [(kept[step], step) for step in members]}, shape)

    def mixture(self):
        """A GPT with a mixture of experts in place of each MLP, and one with MLPs, which computes a token with as many parameters."""
        s = self.s
        model = {"--model": "gpt", "--width": s.mixture_width, "--layers": s.mixture_layers,
                 "--quantizers": ",".join(name for name in s.mixture_quantizers if name in s.quantizers)}
        for run, more in ((MIXTURE, {"--experts": s.experts}), (DENSE, {})):
            self.add(run, ("mixture",), s.mixture_run, mixture_decay(s), more=model | more)

    def help(self):
        """Trunks of several recipes, and decays that leave them. The peaks between the lowest and the highest are last, for a study that is
        interrupted."""
        s = self.s
        ends = dict.fromkeys([s.help_rates[-1], s.help_rates[0]])
        for rate in (*ends, *s.help_beyond, *(rate for rate in s.help_rates if rate not in ends)):
            for recipe in s.help_recipes:
                self.help_decays(recipe, rate, s.help_budgets[:1] if rate in s.help_beyond else s.help_budgets)

    def help_decays(self, recipe, rate, budgets):
        s = self.s
        more = {"--optimizer": recipe[0], "--weight-decay": recipe[1], "--warmup": s.help_warmup, "--every": s.help_budgets[-1],
                "--quantizers": ",".join(s.help_quantizers), "--group-size": -1}
        trunk = help_trunk(recipe, rate)
        decays_of = [(budget, part, round(part * budget)) for budget in budgets for part in s.help_parts]
        cuts = {cut for budget, _, steps in decays_of for cut in (budget - steps, budget)}
        self.add(trunk, ("help",), budgets[-1], rate=rate, cuts=cuts, more=more)
        for (budget, part, steps), final in itertools.product(decays_of, s.help_finals):
            # A decay to a share of the peak is the beginning of a longer one to zero.
            whole = round(steps / (1 - final))
            self.add(help_run(recipe, rate, budget, part, final), ("help",), budget - steps + whole, whole, start=budget - steps, rate=rate,
                     more=more, trunk=trunk, to=budget)


def plan(s, groups=()):
    """All legs of the groups (of all groups if `groups` is empty) and the legs that they need, each after those that it needs. Seeds take
    turns, so that an interrupted study has few runs with all seeds rather than all runs with few."""
    seeds = [SeedPlan(s, seed) for seed in range(s.seeds)]
    legs = []
    for group in GROUPS:
        for seed in seeds:
            seed.legs = []
            getattr(seed, group)()
        legs += itertools.chain(*zip(*(seed.legs for seed in seeds), strict=True))
    wanted = set()
    for leg in reversed(legs):
        if not groups or set(leg.groups) & set(groups) or leg.id in wanted:
            wanted.update([leg.id, *leg.needs])
    return [leg for leg in legs if leg.id in wanted]
