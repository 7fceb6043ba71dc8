// The page of one run, from its series, its newest report and its status.

const LOOKS = {healthy: 'ok', recovering: 'ok', drifting: 'warn', unclear: 'warn', decay_degradation: 'alarm', spike: 'alarm'};
const STATES = {
  warming_up: 'warming up', healthy: 'healthy', drifting: 'drifting', decay_degradation: 'degrades with the decay', spike: 'spike',
  recovering: 'recovering', unclear: 'unclear', unknown: 'unknown',
};
const look = (state) => LOOKS[state] || 'calm';

class RunView {
  constructor(name) {
    Object.assign(this, {name, series: new Series(), newest: null, status: null, run: null, events: [], figures: [], wanted: false});
  }

  show() {
    byId('runs').hidden = true;
    this.figures = CHARTS.map((definition) => new ChartFigure(definition, this.series));
    fill('charts', ...this.figures.map((figure) => figure.node));
    fill('key', ...[['decay', 'decay'], ['warmup', 'warm-up'], ['rewarm', 're-warm'], ['onset', 'onset'], ['rule', 'alarm']]
        .map(([mark, text]) => el('li', {}, el('span', {class: `swatch ${mark}`}), text)));
    byId('part').addEventListener('change', () => this.figures.forEach((figure) => figure.show(byId('part').value)));
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', () => this.figures.forEach((figure) => figure.restart()));
    this.renderHead();
  }

  /** Drops the data of a run that has been replaced. */
  clear() {
    this.series.clear();
    this.newest = null;
    this.events = [];
  }

  /** Schedules a redraw, because many reports may arrive at once. */
  changed() {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => {
      this.wanted = false;
      this.render();
    });
  }

  setStatus(entry) {
    this.run = entry.run;
    this.status = entry.status;
    this.renderHead();
    if (!byId('run').hidden) this.renderTiles();
  }

  render() {
    const {newest} = this;
    byId('empty').hidden = newest !== null;
    byId('run').hidden = newest === null;
    this.renderHead();
    if (newest === null) {
      setText(byId('empty'), this.emptyText());
      return;
    }
    this.renderVerdict();
    this.renderTiles();
    byId('part-decay').disabled = !isNumber(this.series.decayOnset);
    this.renderCharts();
    byId('tasks-card').hidden = !(newest.tasks || []).length;
    fill('tasks', tasksTable(newest));
    byId('sizes-card').hidden = !sized(newest).length;
    fill('sizes', sizesTable(newest));
    fill('layers', layersTable(newest));
    fill('averaging', averagingTable(newest));
    fill('outlook', outlookTable(newest));
    fill('cost', costTable(newest, this.status));
    fill('events', eventList(this.events));
    renewAges();
  }

  /** Draws one chart at a time, so that a page with thousands of reports is responsive early. */
  renderCharts() {
    clearTimeout(this.drawing);
    const waiting = [...this.figures];
    const next = () => {
      waiting.shift().update();
      if (waiting.length > 0) this.drawing = setTimeout(next);
    };
    next();
  }

  emptyText() {
    if (!this.status) return 'Waiting for the run…';
    if (this.status.health === 'inert') return `The monitor is inert: ${this.status.health_reason}`;
    if (this.status.health === 'stopped') return 'The run ended before its first report.';
    const step = isNumber(this.status.step) ? `Training is at step ${integer(this.status.step)}. ` : '';
    return `${step}Waiting for the first report.`;
  }

  renderHead() {
    const {run, status, newest, name} = this;
    const title = name || (run && (run.run_dir.split('/').filter(Boolean).at(-1) || run.run_id)) || 'Run';
    setText(byId('title'), title);
    const state = newest ? STATES[newest.verdict.state] || newest.verdict.state : 'no report yet';
    document.title = `${title}: ${state} – ptqwatch`;
    if (!run) return;
    const parts = [`run ${run.run_id}`, `attempt ${run.attempt}`];
    if (run.parameters > 0) parts.push(`${integer(run.parameters)} parameters, ${percent(run.covered_parameters / run.parameters)} quantized`);
    if (run.optimizer) parts.push(`trained by ${run.optimizer}`);
    if (run.device) parts.push(run.device);
    if (status) parts.push(`monitor ${status.paused ? 'paused' : status.health}${status.health_reason ? `: ${status.health_reason}` : ''}`);
    if (status && replicasText(status)) parts.push(replicasText(status));
    setText(byId('facts'), parts.join(' · '));
  }

  renderVerdict() {
    const {verdict, step, snapshot_time_unix_seconds: time} = this.newest;
    byId('verdict').className = `verdict ${look(verdict.state)}`;
    byId('state').className = `pill ${look(verdict.state)}`;
    setText(byId('state'), STATES[verdict.state] || words(verdict.state));
    const facts = [];
    if (isNumber(verdict.onset_step)) {
      const {onset_low_step: low, onset_high_step: high} = verdict;
      facts.push(`since step ${integer(verdict.onset_step)}${low < high ? ` (${integer(low)} to ${integer(high)})` : ''}`);
    }
    if (isNumber(verdict.decay_onset_step)) facts.push(`the rate began to fall at step ${integer(verdict.decay_onset_step)}`);
    if (isNumber(verdict.loss_converged_step)) facts.push(`the loss stopped improving at step ${integer(verdict.loss_converged_step)}`);
    if (isNumber(verdict.sigmas)) facts.push(`evidence ${number(verdict.sigmas, 2)}σ, alarm threshold ${number(verdict.alarm_sigmas, 2)}σ`);
    setText(byId('since'), facts.join(' · '));
    setText(byId('summary'), verdict.summary || 'No verdict yet.');
    const advice = (verdict.advice || []).filter((entry) => entry.text);
    fill('advice', advice.length === 0 ? null :
        el('div', {}, el('h3', {}, 'What would help'), el('ul', {}, ...advice.map((entry) => el('li', {}, entry.text)))));
    fill('verdict-age', age(time, `Measured at step ${integer(step)},`));
  }

  renderTiles() {
    const {newest, status} = this;
    if (!newest) return;
    const entry = watched(newest);
    const curvature = newest.curvature || {};
    const snapshot = newest.snapshot_time_unix_seconds;
    const live = status && status.last_step_unix_seconds > 0 ? status.last_step_unix_seconds : snapshot;
    const tile = (id, title, value, unit) => el('div', {id: `tile-${id}`},
        el('dt', {}, title), el('dd', {class: 'value'}, value, unit ? el('small', {}, ` ${unit}`) : null));
    const measured = (part, value) => isNumber(part) ? value : 'not measured';
    const tiles = [
      tile('step', 'Step', integer(status && isNumber(status.step) ? status.step : newest.step), ''),
      tile('rate', 'Learning rate', learningRate(status && isNumber(status.step) ? status.learning_rate : newest.learning_rate),
           words(status && isNumber(status.step) ? status.lr_phase : newest.lr_phase)),
      tile('loss', 'Loss', measured(newest.probe_loss_nats, plusMinus(newest.probe_loss_nats, newest.probe_loss_stderr_nats)), 'nats'),
    ];
    for (const quantizer of newest.quantization || []) {
      if (quantizer !== entry && (newest.quantization || []).length > 1) continue;
      tiles.push(tile('error', `E, ${quantizerName(quantizer)}`,
                      isNumber(quantizer.error_ratio) ? percent(quantizer.error_ratio, quantizer.error_ratio_stderr) : words(quantizer.status), ''));
      tiles.push(tile('quantized', `Loss, ${quantizerName(quantizer)}`, measured(quantizer.loss_nats, number(quantizer.loss_nats)), 'nats'));
    }
    const pooled = newest.pooled || {};
    if (isNumber(pooled.error_ratio)) {
      tiles.push(tile('pooled', `E, ${quantizerName(pooled)}, all probe sets`, percent(pooled.error_ratio, pooled.error_ratio_stderr), `${integer(pooled.probe_tokens)} tokens`));
    }
    const predicted = predictedError(newest);
    if (predicted && isNumber(predicted.error_ratio)) {
      tiles.push(tile('predicted', `E at the end of the decay, ${quantizerName(predicted)}`, percent(predicted.error_ratio),
                      `${percent(predicted.error_low_ratio)} to ${percent(predicted.error_high_ratio)}, predicted at step ${integer(newest.predicted_end.step)}`));
    }
    const noise = newest.noise || {};
    if (isNumber(noise.delta_nats)) {
      tiles.push(tile('noise', `Loss increase under ${percent(noise.relative_norm)} noise`, plusMinus(noise.delta_nats, noise.delta_stderr_nats), 'nats'));
    }
    tiles.push(tile('trace', 'Hessian trace', measured(curvature.trace, plusMinus(curvature.trace, curvature.trace_stderr)), ''));
    tiles.push(tile('eigenvalue', 'Top eigenvalue', measured(curvature.top_eigenvalue, number(curvature.top_eigenvalue, 3)),
                    isNumber(curvature.top_eigenvalue_upper) ? `at most ${number(curvature.top_eigenvalue_upper, 3)}` : ''));
    fill('tiles', ...tiles);
    fill('now-age', age(live, 'last step'), ' · ', age(snapshot, 'measured'));
  }
}
