// The list of runs, for a server with several: small charts, each a link to the run's page.

const LISTED_REPORTS = 300;
const LIST_MS = 5000;

/** A small line chart of the newest branch, without axes. */
function sparkline(series, values, color) {
  const {newest} = series;
  const kept = newest ? thin(values, newest.begin, newest.end, 100).filter((i) => Number.isFinite(values[i])) : [];
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 300 56');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  if (kept.length === 0) return svg;
  const along = series.x;
  const width = (along[newest.end - 1] - along[newest.begin]) || 1;
  const least = Math.min(...kept.map((i) => values[i]));
  const height = Math.max(...kept.map((i) => values[i])) - least || 1;
  const x = (value) => 300 * (value - along[newest.begin]) / width;
  const shape = (name, attributes) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    svg.append(node);
  };
  for (const {phase, from, to} of series.phases([newest])) {
    if (SHADED[phase]) shape('rect', {x: Math.max(0, x(from)), y: 0, width: Math.max(0, x(to) - Math.max(0, x(from))), height: 56, fill: css(SHADED[phase])});
  }
  const at = (i) => `${x(along[i]).toFixed(1)},${(52 - 48 * (values[i] - least) / height).toFixed(1)}`;
  if (kept.length === 1) {
    shape('circle', {cx: 2, cy: 28, r: 2, fill: color});
  } else {
    shape('polyline', {points: kept.map(at).join(' '), fill: 'none', stroke: color, 'stroke-width': 2, 'vector-effect': 'non-scaling-stroke'});
  }
  return svg;
}

class RunCard {
  constructor(name) {
    Object.assign(this, {name, series: new Series(), identity: null, newest: null, entry: null});
    this.node = el('a', {class: 'runcard', href: `/?run=${encodeURIComponent(name)}`, 'data-run': name});
  }

  async update(entry) {
    this.entry = entry;
    if (entry.run.run_id !== this.identity) {
      this.series.clear();
      this.newest = null;
      this.identity = entry.run.run_id;
    }
    const after = Math.max(this.series.newestSequence, entry.newest_sequence - LISTED_REPORTS);
    if (entry.newest_sequence > after) {
      const page = await getJson('api/v1/reports', {after, series: 1, run: this.name});
      page.reports.forEach((report) => this.series.add(report));
      if (page.reports.length > 0) this.newest = page.reports.at(-1);
    }
    this.render();
  }

  render() {
    const {entry, newest, series, name} = this;
    const {status} = entry;
    const state = newest ? newest.verdict.state : 'unknown';
    const parts = [el('h2', {}, el('span', {}, name), el('span', {class: `pill ${look(state)}`}, newest ? STATES[state] || words(state) : 'no report yet'))];
    const facts = [isNumber(status.step) ? `step ${integer(status.step)}` : 'no step yet', words(status.lr_phase), `monitor ${status.health}`];
    if (replicasText(status)) facts.push(replicasText(status));
    parts.push(el('p', {class: 'facts'}, facts.join(' · ')));
    const quantizer = this.worst();
    if (quantizer) {
      const last = quantizer.ratio.findLastIndex((value) => Number.isFinite(value));
      parts.push(el('p', {class: 'spark'}, `E, ${quantizer.name}`, el('b', {}, percent(quantizer.ratio[last], quantizer.ratioError[last]))),
                 sparkline(series, quantizer.ratio, seriesColor(0)));
    }
    if (newest && isNumber(newest.probe_loss_nats)) {
      parts.push(el('p', {class: 'spark'}, 'Loss', el('b', {}, `${plusMinus(newest.probe_loss_nats, newest.probe_loss_stderr_nats)} nats`)),
                 sparkline(series, series.columns.loss, seriesColor(2)));
    }
    parts.push(el('p', {class: 'age'}, newest ? age(newest.snapshot_time_unix_seconds, 'Measured') : status.health === 'stopped' ? 'The run ended before its first report.' : 'Waiting for the first report.'));
    this.node.replaceChildren(...parts);
  }

  /** The quantizer with the largest newest error. */
  worst() {
    const now = (quantizer) => quantizer.ratio.findLast((value) => Number.isFinite(value)) ?? -Infinity;
    return [...this.series.quantizers.values()].filter((quantizer) => finite(quantizer.ratio)).sort((a, b) => now(b) - now(a))[0];
  }
}

class RunList {
  constructor() {
    this.cards = new Map();
    this.connection = new Connection();
  }

  async start(first) {
    setText(byId('title'), 'Runs');
    document.title = 'Runs – ptqwatch';
    byId('runs').hidden = false;
    let answer = first;
    while (true) {
      try {
        await this.update(answer || await getJson('api/v1/status', {}));
        this.connection.live();
      } catch (error) {
        this.connection.lost(error.message);
      }
      answer = null;
      await pause(LIST_MS);
    }
  }

  async update({runs}) {
    for (const name of [...this.cards.keys()]) {
      if (!runs.some((entry) => entry.name === name)) this.cards.delete(name);
    }
    for (const entry of runs) {
      if (!this.cards.has(entry.name)) this.cards.set(entry.name, new RunCard(entry.name));
      await this.cards.get(entry.name).update(entry);
    }
    setText(byId('facts'), `${runs.length} runs`);
    const nodes = runs.map((entry) => this.cards.get(entry.name).node);
    // Replacing an unchanged list would take the focus from its links.
    if (nodes.length !== byId('runs').childElementCount || nodes.some((node, i) => byId('runs').children[i] !== node)) fill('runs', ...nodes);
    renewAges();
  }
}
