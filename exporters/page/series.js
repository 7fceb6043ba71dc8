// The data of the charts: one column per series, one entry per report. A value that was not measured is NaN.

const ALARMS = ['decay_degradation', 'spike'];
const orNaN = (value) => isNumber(value) ? value : NaN;

class Series {
  constructor() {
    this.clear();
  }

  clear() {
    this.columns = {};
    for (const name of ['sequence', 'step', 'time', 'learningRate', 'loss', 'lossError', 'trainingLoss', 'trace', 'traceError',
                        'eigenvalue', 'eigenvalueResidual', 'phase', 'state', 'onset', 'sigmas', 'alarmSigmas', 'predicted',
                        'predictedError']) {
      this.columns[name] = [];
    }
    this.lossUnit = 'token';
    this.quantizers = new Map();  // by name: {name, loss, ratio, ratioError}
  }

  get length() { return this.columns.step.length; }
  get newestSequence() { return this.length > 0 ? this.columns.sequence.at(-1) : 0; }

  /** Adds the next report of the journal. Drops reports with its step or a later one: training went back. */
  add(report) {
    if (report.sequence <= this.newestSequence) return;
    const {columns} = this;
    while (this.length > 0 && columns.step.at(-1) >= report.step) this.drop();
    const curvature = report.curvature || {};
    this.lossUnit = lossUnit(report);
    columns.sequence.push(report.sequence);
    columns.step.push(report.step);
    columns.time.push(orNaN(report.snapshot_time_unix_seconds));
    columns.learningRate.push(orNaN(report.learning_rate));
    columns.loss.push(orNaN(report.probe_loss_nats));
    columns.lossError.push(orNaN(report.probe_loss_stderr_nats));
    columns.trainingLoss.push(orNaN(report.training_loss_nats));
    columns.trace.push(orNaN(curvature.trace));
    columns.traceError.push(orNaN(curvature.trace_stderr));
    columns.eigenvalue.push(orNaN(curvature.top_eigenvalue));
    columns.eigenvalueResidual.push(orNaN(curvature.top_eigenvalue_residual_ratio));
    columns.phase.push(report.lr_phase || 'unknown');
    columns.state.push((report.verdict || {}).state || 'unknown');
    columns.onset.push(orNaN((report.verdict || {}).onset_step));
    columns.sigmas.push(orNaN((report.verdict || {}).sigmas));
    columns.alarmSigmas.push(orNaN((report.verdict || {}).alarm_sigmas));
    const predicted = predictedError(report) || {};
    columns.predicted.push(orNaN(predicted.error_ratio));
    columns.predictedError.push((orNaN(predicted.error_high_ratio) - orNaN(predicted.error_low_ratio)) / 2 / BAND);
    if (isNumber(predicted.error_ratio)) this.predictedName = quantizerName(predicted);
    this.decayOnset = report.decay_onset_step;
    for (const entry of report.quantization || []) this.addQuantizer(entry);
    for (const quantizer of this.quantizers.values()) quantizer.pad(this.length);
  }

  addQuantizer(entry) {
    const name = quantizerName(entry);
    if (!this.quantizers.has(name)) this.quantizers.set(name, new QuantizerColumns(name));
    const columns = this.quantizers.get(name);
    if (columns.loss.length >= this.length) return;  // if two have one name, the first is shown
    columns.pad(this.length - 1);
    columns.loss.push(orNaN(entry.loss_nats));
    columns.ratio.push(orNaN(entry.error_ratio));
    columns.ratioError.push(orNaN(entry.error_ratio_stderr));
  }

  drop() {
    for (const column of Object.values(this.columns)) column.pop();
    for (const {loss, ratio, ratioError} of this.quantizers.values()) [loss, ratio, ratioError].forEach((column) => column.pop());
  }

  /** Index of the first entry in a part of the run: "all", "half" and "fifth" (the last ones), or "decay". */
  begin(part) {
    const {step} = this.columns;
    if (this.length === 0 || part === 'all') return 0;
    const share = {half: 0.5, fifth: 0.8}[part];
    const from = share === undefined ? this.decayOnset : step[0] + share * (step.at(-1) - step[0]);
    const first = step.findIndex((value) => value >= from);
    return first < 0 ? 0 : Math.min(first, this.length - 1);
  }

  /** [{phase, from, to}] in steps. The decay begins at the learning rate's onset, not at the snapshot after it. */
  phases() {
    const {step, phase} = this.columns;
    const spans = [];
    for (let i = 0; i < step.length; ++i) {
      const last = spans.at(-1);
      if (last && last.phase === phase[i]) {
        last.to = step[i];
        continue;
      }
      let from = i > 0 ? step[i - 1] : step[i];
      if (phase[i] === 'decay' && isNumber(this.decayOnset) && this.decayOnset > from && this.decayOnset <= step[i]) from = this.decayOnset;
      if (last) last.to = from;
      spans.push({phase: phase[i], from, to: step[i]});
    }
    return spans;
  }

  /** Steps at which alarms began. */
  alarms() {
    const {step, state} = this.columns;
    return step.filter((_, i) => ALARMS.includes(state[i]) && (i === 0 || state[i - 1] !== state[i]));
  }

  /** The onset step of the newest verdict. */
  onset() {
    return this.length > 0 ? this.columns.onset.at(-1) : NaN;
  }
}

class QuantizerColumns {
  constructor(name) {
    Object.assign(this, {name, loss: [], ratio: [], ratioError: []});
  }
  pad(length) {
    for (const column of [this.loss, this.ratio, this.ratioError]) {
      while (column.length < length) column.push(NaN);
    }
  }
}

/** Indices to draw, beginning at `from`. Divides a long series into `buckets` and keeps each one's first, minimum, maximum and last
    value. */
function thin(values, from = 0, buckets = 250) {
  const all = values.length - from;
  if (all <= buckets * 3) return values.slice(from).map((_, i) => from + i);
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
