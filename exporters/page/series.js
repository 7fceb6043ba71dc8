// The data of the charts: one column per series, one entry per report, branch by branch. A value that was not measured is NaN.

const ALARMS = ['decay_degradation', 'spike'];
const orNaN = (value) => isNumber(value) ? value : NaN;

const COLUMNS = ['sequence', 'step', 'tokens', 'branch', 'time', 'learningRate', 'loss', 'lossError', 'trainingLoss', 'trace', 'traceError',
                 'eigenvalue', 'eigenvalueUpper', 'phase', 'decayOnset', 'state', 'onset', 'sigmas', 'alarmSigmas', 'predicted', 'predictedError'];

class Series {
  constructor() {
    this.clear();
  }

  clear() {
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, []]));
    this.branches = [];  // [{name, begin, end}]: the entries of a branch lie together, by step
    this.lossUnit = 'token';
    this.quantizers = new Map();  // by name: {name, loss, ratio, ratioError}
    this.newest = null;  // the branch of the newest report
    this.newestSequence = 0;
    this.checkpoints = false;  // of a run measured from its checkpoints
  }

  get length() { return this.columns.step.length; }

  /** Adds the next report of the journal. Drops reports of its branch with its step or a later one: training went back. */
  add(report) {
    if (report.sequence <= this.newestSequence) return;
    const name = report.branch || '';
    let branch = this.branches.find((other) => other.name === name);
    if (!branch) {
      branch = {name, begin: this.length, end: this.length};
      this.branches.push(branch);
    }
    while (branch.end > branch.begin && this.columns.step[branch.end - 1] >= report.step) this.drop(branch);
    const at = branch.end;
    this.grow(branch, 1);
    const curvature = report.curvature || {};
    const verdict = report.verdict || {};
    const predicted = predictedError(report) || {};
    const entry = {
      sequence: report.sequence, step: report.step, tokens: orNaN(report.tokens), branch: name, time: orNaN(report.snapshot_time_unix_seconds),
      learningRate: orNaN(report.learning_rate), loss: orNaN(report.probe_loss_nats), lossError: orNaN(report.probe_loss_stderr_nats),
      trainingLoss: orNaN(report.training_loss_nats), trace: orNaN(curvature.trace), traceError: orNaN(curvature.trace_stderr),
      eigenvalue: orNaN(curvature.top_eigenvalue), eigenvalueUpper: orNaN(curvature.top_eigenvalue_upper),
      phase: report.lr_phase || 'unknown', decayOnset: orNaN(report.decay_onset_step), state: verdict.state || 'unknown',
      onset: orNaN(verdict.onset_step), sigmas: orNaN(verdict.sigmas), alarmSigmas: orNaN(verdict.alarm_sigmas),
      predicted: orNaN(predicted.error_ratio), predictedError: (orNaN(predicted.error_high_ratio) - orNaN(predicted.error_low_ratio)) / 2 / BAND,
    };
    for (const [column, values] of Object.entries(this.columns)) values.splice(at, 0, entry[column]);
    if (isNumber(predicted.error_ratio)) this.predictedName = quantizerName(predicted);
    this.lossUnit = lossUnit(report);
    this.decayOnset = report.decay_onset_step;
    this.checkpoints = report.source === 'trajectory';
    this.newest = branch;
    this.newestSequence = report.sequence;
    for (const quantizer of this.quantizers.values()) quantizer.insert(at);
    // If two have one name, the first is shown.
    const seen = new Set();
    for (const measured of report.quantization || []) {
      const quantizer = quantizerName(measured);
      if (seen.has(quantizer)) continue;
      seen.add(quantizer);
      if (!this.quantizers.has(quantizer)) this.quantizers.set(quantizer, new QuantizerColumns(quantizer, this.length));
      this.quantizers.get(quantizer).set(at, measured);
    }
  }

  drop(branch) {
    this.grow(branch, -1);
    for (const column of Object.values(this.columns)) column.splice(branch.end, 1);
    for (const quantizer of this.quantizers.values()) quantizer.drop(branch.end);
  }

  /** Moves the end of a branch, and the branches after it. */
  grow(branch, count) {
    branch.end += count;
    for (const later of this.branches.slice(this.branches.indexOf(branch) + 1)) {
      later.begin += count;
      later.end += count;
    }
  }

  /** The name of the column to draw over: tokens for checkpoints that all have them, else steps. */
  get axis() {
    const {tokens} = this.columns;
    const rising = ({begin, end}) => tokens.slice(begin, end).every((value, i) => Number.isFinite(value) && (i === 0 || value > tokens[begin + i - 1]));
    return this.checkpoints && this.branches.every(rising) ? 'tokens' : 'step';
  }
  get x() { return this.columns[this.axis]; }

  /** Where a step of a branch lies on the axis; between two entries on the line through them. */
  place(step, {begin, end}) {
    const steps = this.columns.step;
    const x = this.x;
    if (x === steps || !isNumber(step)) return step;
    let i = begin;
    while (i < end && steps[i] < step) ++i;
    if (i === begin || i === end) return x[Math.min(i, end - 1)];
    return x[i - 1] + (x[i] - x[i - 1]) * (step - steps[i - 1]) / (steps[i] - steps[i - 1]);
  }

  /** [first, last] on the axis of a part of the run: "all", "half" and "fifth" (the last ones), or "decay" (of the newest branch). */
  range(part) {
    const x = this.x;
    const first = Math.min(...this.branches.map(({begin}) => x[begin]));
    const last = Math.max(...this.branches.map(({end}) => x[end - 1]));
    if (part === 'all') return [first, last];
    const share = {half: 0.5, fifth: 0.8}[part];
    const from = share === undefined ? this.place(this.decayOnset, this.newest) : first + share * (last - first);
    const shown = x.reduce((least, value) => value >= from && value < least ? value : least, last);
    return [isNumber(from) ? shown : first, last];
  }

  /** [{phase, from, to}] on the axis, for each branch. The decay begins at the learning rate's onset, not at the snapshot after it. */
  phases(branches = this.branches) {
    const {phase, decayOnset} = this.columns;
    const x = this.x;
    return branches.flatMap((branch) => {
      const spans = [];
      const onset = this.place(decayOnset[branch.end - 1], branch);
      for (let i = branch.begin; i < branch.end; ++i) {
        const last = spans.at(-1);
        if (last && last.phase === phase[i]) {
          last.to = x[i];
          continue;
        }
        let from = x[Math.max(branch.begin, i - 1)];
        if (phase[i] === 'decay' && onset > from && onset <= x[i]) from = onset;
        if (last) last.to = from;
        spans.push({phase: phase[i], from, to: x[i]});
      }
      return spans;
    });
  }

  /** Places on the axis at which alarms began. */
  alarms() {
    const {state} = this.columns;
    return this.branches.flatMap(({begin, end}) => this.x.slice(begin, end).filter(
        (_, i) => ALARMS.includes(state[begin + i]) && (i === 0 || state[begin + i - 1] !== state[begin + i])));
  }

  /** The place on the axis of the newest verdict's onset. */
  onset() {
    return this.newest ? this.place(this.columns.onset[this.newest.end - 1], this.newest) : NaN;
  }
}

class QuantizerColumns {
  constructor(name, length) {
    const empty = () => new Array(length).fill(NaN);
    Object.assign(this, {name, loss: empty(), ratio: empty(), ratioError: empty()});
  }
  insert(at) {
    for (const column of [this.loss, this.ratio, this.ratioError]) column.splice(at, 0, NaN);
  }
  set(at, entry) {
    this.loss[at] = orNaN(entry.loss_nats);
    this.ratio[at] = orNaN(entry.error_ratio);
    this.ratioError[at] = orNaN(entry.error_ratio_stderr);
  }
  drop(at) {
    for (const column of [this.loss, this.ratio, this.ratioError]) column.splice(at, 1);
  }
}

/** Indices to draw, from `from` up to `to`. Divides a long series into `buckets` and keeps each one's first, minimum, maximum and last
    value. */
function thin(values, from = 0, to = values.length, buckets = 250) {
  const all = to - from;
  if (all <= buckets * 3) return values.slice(from, to).map((_, i) => from + i);
  const kept = [];
  for (let bucket = 0; bucket < buckets; ++bucket) {
    const begin = from + Math.floor(bucket * all / buckets);
    const end = from + Math.floor((bucket + 1) * all / buckets);
    let least = begin;
    let greatest = begin;
    for (let i = begin; i < end; ++i) {
      if (values[i] < values[least] || Number.isNaN(values[least])) least = i;
      if (values[i] > values[greatest] || Number.isNaN(values[greatest])) greatest = i;
    }
    kept.push(...new Set([begin, Math.min(least, greatest), Math.max(least, greatest), end - 1]));
  }
  return kept;
}
