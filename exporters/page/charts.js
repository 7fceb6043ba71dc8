// Line charts over the training step, or over the tokens of checkpoints, with shaded phases and marks for onset and alarms. Each branch has
// a line of its own.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesColor = (index) => css(`--s${index % 8}`);
const SHADED = {decay: '--decay', slow_decay: '--decay', warmup: '--warmup', rewarm: '--rewarm'};
const SHOWN_REPORTS = 50;  // in a table
const BAND = 1.96;  // 95 % in standard errors
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3]];  // of the branches, in turn
const dashOf = (branch) => DASHES[branch % DASHES.length];

/** A series to draw. `band` has standard errors; `bridge` draws across gaps. */
function line(label, color, values, {band = null, dashed = false, bridge = false, text = (value) => number(value)} = {}) {
  return {label, color, values, band, dashed, bridge, text};
}

/** The charts of the page: title, unit and lines. */
const CHARTS = [
  {
    id: 'error', title: 'Relative loss increase E', unit: '%, band: 95 % interval', logarithm: true,
    empty: 'No quantizer has been measured yet.',
    lines: (series) => {
      const line100 = (label, color, ratio, error, dashed = false) => line(label, color, ratio.map((value) => value * 100),
          {band: error.map((value) => value * 100), dashed, text: (value, error) => percent(value / 100, error / 100)});
      const lines = [...series.quantizers.values()].map((quantizer, i) => line100(quantizer.name, seriesColor(i), quantizer.ratio, quantizer.ratioError));
      const {predicted, predictedError} = series.columns;
      if (finite(predicted)) lines.push(line100(`${series.predictedName}, predicted end of the decay`, css('--second'), predicted, predictedError, true));
      return lines;
    },
  },
  {
    id: 'loss', title: 'Loss, full and quantized', unit: (series) => `nats per ${series.lossUnit}`, empty: 'No loss has been measured yet.',
    lines: (series) => [
      line('full precision', css('--loss'), series.columns.loss, {band: series.columns.lossError, text: plusMinus}),
      ...[...series.quantizers.values()].map((quantizer, i) => line(quantizer.name, seriesColor(i), quantizer.loss)),
      line('training', css('--second'), series.columns.trainingLoss, {dashed: true}),
    ],
  },
  {
    id: 'trace', title: 'Hessian trace', unit: 'nats per squared unit of weight, band: 95 % interval',
    empty: 'Curvature has not been measured.',
    lines: (series) => [line('trace', seriesColor(3), series.columns.trace, {band: series.columns.traceError, bridge: true, text: plusMinus})],
  },
  {
    id: 'eigenvalue', title: 'Top Hessian eigenvalue', unit: 'nats per squared unit of weight',
    empty: 'Curvature has not been measured.',
    lines: (series) => [line('top eigenvalue', seriesColor(4), series.columns.eigenvalue, {bridge: true}),
                        line('at most (97.5 %)', seriesColor(4), series.columns.eigenvalueUpper, {dashed: true, bridge: true})],
  },
  {
    id: 'rate', title: 'Learning rate', unit: 'at the snapshots', empty: 'No report yet.', zero: true,
    lines: (series) => [line('learning rate', seriesColor(0), series.columns.learningRate, {text: learningRate})],
  },
  {
    id: 'evidence', title: 'Evidence for a rise', unit: 'standard errors', empty: 'No verdict yet: a baseline takes five snapshots.', zero: true,
    lines: (series) => [line('evidence', seriesColor(1), series.columns.sigmas),
                        line('alarm threshold', css('--alarm'), series.columns.alarmSigmas, {dashed: true})],
  },
];

const shading = {
  id: 'shading',
  beforeDatasetsDraw(chart) {
    const {ctx, chartArea: area, scales: {x}, options} = chart;
    const {phases, alarms, onset} = options.plugins.shading;
    const pixel = (place) => Math.min(area.right, Math.max(area.left, x.getPixelForValue(place)));
    ctx.save();
    for (const {phase, from, to} of phases || []) {
      if (!SHADED[phase]) continue;
      ctx.fillStyle = css(SHADED[phase]);
      ctx.fillRect(pixel(from), area.top, pixel(to) - pixel(from), area.bottom - area.top);
    }
    const rule = (place, color, dash) => {
      if (!isNumber(place) || place < x.min || place > x.max) return;
      ctx.strokeStyle = color;
      ctx.lineWidth = 1.5;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(pixel(place), area.top);
      ctx.lineTo(pixel(place), area.bottom);
      ctx.stroke();
    };
    rule(onset, css('--warn'), [2, 3]);
    for (const place of alarms || []) rule(place, css('--alarm'), [6, 4]);
    ctx.restore();
  },
};

const finite = (values) => values.some((value) => Number.isFinite(value));

function nearlyPositive(lines, x, from) {
  const values = lines.flatMap((drawn) => drawn.values.filter((value, i) => x[i] >= from && Number.isFinite(value)));
  const extreme = (pick) => values.reduce((found, value) => pick(found, value), 0);
  return -extreme(Math.min) < 0.05 * extreme(Math.max);
}

/** The points of a line's branch and of its band's edges. */
function points({values, band, bridge}, {begin, end}, {x, from, logarithmic}) {
  let first = begin;
  while (first < end && x[first] < from) ++first;
  const kept = thin(values, first, end).filter((i) => !bridge || Number.isFinite(values[i]));
  // A band that reaches below zero has no lower end on a logarithmic axis.
  const floor = logarithmic ? 0.1 * Math.min(...values.filter((value) => value > 0)) : -Infinity;
  const at = (y) => kept.map((i) => ({x: x[i], y: y(i), i}));
  return {
    middle: at((i) => values[i]),
    low: band && at((i) => Math.max(floor, values[i] - BAND * (band[i] || 0))),
    high: band && at((i) => values[i] + BAND * (band[i] || 0)),
  };
}

function datasets(branches, lines, how) {
  const sets = [];
  for (const drawn of lines) {
    branches.forEach((branch, number) => {
      const {middle, low, high} = points(drawn, branch, how);
      const radius = middle.length <= 3 ? 4 : middle.length <= 60 ? 2 : 0;
      const label = branch.name ? `${drawn.label}, ${branch.name}` : drawn.label;
      sets.push({label, data: middle, borderColor: drawn.color, backgroundColor: drawn.color, borderWidth: drawn.dashed ? 1.25 : 2,
                 borderDash: drawn.dashed ? [4, 3] : dashOf(number), pointRadius: radius, pointHitRadius: 6, tension: 0, drawn});
      if (!drawn.band || !finite(drawn.band)) return;
      const edge = {borderWidth: 0, pointRadius: 0, pointHitRadius: 0, backgroundColor: `${drawn.color}2e`, drawn: null};
      sets.push({...edge, data: low, fill: false}, {...edge, data: high, fill: '-1'});
    });
  }
  return sets;
}

function scales(chart, axis, logarithmic) {
  const ticks = {color: css('--muted'), font: {size: 12}, maxRotation: 0, autoSkipPadding: 14};
  const grid = {color: css('--grid'), borderColor: css('--line')};
  const text = logarithmic ? {callback: logarithmTick} : chart.id === 'rate' ? {callback: rateTick} : {};
  return {
    x: {type: 'linear', grid: {...grid, display: false}, ticks: {...ticks, maxTicksLimit: 7, callback: axis === 'tokens' ? compact : wholeTick},
        title: {display: true, text: axis, color: css('--muted'), font: {size: 12}}},
    y: {type: logarithmic ? 'logarithmic' : 'linear', beginAtZero: Boolean(chart.zero), grid, grace: logarithmic ? 0 : '4%',
        ticks: {...ticks, maxTicksLimit: 6, ...text}},
  };
}

const wholeTick = (value) => Number.isInteger(value) ? integer(value) : '';

function rateTick(value) {
  if (value === 0) return '0';
  return value.toExponential(value.toExponential().includes('.') ? 1 : 0).replace('-', '−');
}

// Ten labels per decade are too many to read.
function logarithmTick(value) {
  const first = Number(value.toExponential()[0]);
  return [1, 2, 5].includes(first) ? number(value, 2) : '';
}

function placeText(series, i) {
  const {step, tokens} = series.columns;
  return `step ${integer(step[i])}${isNumber(tokens[i]) ? `, ${compact(tokens[i])} tokens` : ''}`;
}

function tooltip(series) {
  return {
    filter: (item) => item.dataset.drawn !== null && Number.isFinite(item.parsed.y),
    callbacks: {
      title: (items) => items.length > 0 ? placeText(series, items[0].raw.i) : '',
      label: (item) => {
        const {drawn, data, label} = item.dataset;
        const {i} = data[item.dataIndex];
        return ` ${label}: ${drawn.text(drawn.values[i], drawn.band ? drawn.band[i] : undefined)}`;
      },
      afterBody: (items) => items.length > 0 ? words(series.columns.phase[items[0].raw.i]) : '',
    },
  };
}

/** A chart with its caption, legend and table. */
class ChartFigure {
  constructor(definition, series) {
    Object.assign(this, {definition, series, chart: null, logarithmic: false, part: 'all'});
    this.legend = el('ul', {class: 'legend'});
    this.unitNote = el('span', {class: 'unit'}, this.unit());
    this.canvas = el('canvas', {role: 'img', 'aria-label': definition.title});
    this.note = el('p', {hidden: true}, definition.empty);  // until it is drawn
    this.details = el('details', {}, el('summary', {}, `${definition.title} as a table`));
    this.details.addEventListener('toggle', () => this.renderTable());
    this.node = el('figure', {id: `chart-${definition.id}`},
        el('figcaption', {}, el('h3', {}, definition.title), this.unitNote, this.logarithmSwitch()),
        this.legend, el('div', {class: 'plot'}, this.canvas, this.note), this.details);
  }

  unit() {
    const {unit} = this.definition;
    return typeof unit === 'function' ? unit(this.series) : unit;
  }

  logarithmSwitch() {
    if (!this.definition.logarithm) return null;
    const box = el('input', {type: 'checkbox'});
    box.addEventListener('change', () => {
      this.logarithmic = box.checked;
      this.restart();
    });
    return el('label', {}, box, ' logarithmic');
  }

  /** Draws a part of the run, as named in Series.range. */
  show(part) {
    this.part = part;
    this.update();
  }

  /** Recreates the chart: colors and axis types are fixed when a chart is created. */
  restart() {
    if (this.chart) this.chart.destroy();
    this.chart = null;
    this.update();
  }

  update() {
    const {definition, series} = this;
    this.lines = definition.lines(series).filter((drawn) => finite(drawn.values));
    const empty = this.lines.length === 0;
    setText(this.unitNote, this.unit());
    this.note.hidden = !empty;
    this.canvas.hidden = empty;
    this.legend.replaceChildren(...this.lines.map((drawn) => {
      const mark = el('i');
      mark.style.background = drawn.color;
      return el('li', {}, mark, drawn.label);
    }), ...this.branchMarks());
    this.canvas.setAttribute('aria-label', this.summary());
    this.renderTable();
    if (empty) return;
    const {axis, x, branches} = series;
    if (this.axis !== axis && this.chart) {
      this.chart.destroy();
      this.chart = null;
    }
    this.axis = axis;
    if (!this.chart) this.start();
    const {chart} = this;
    const [from, to] = series.range(this.part);
    const alone = from === to ? 1 : 0;  // centers a single report
    chart.options.scales.x.min = from - alone;
    chart.options.scales.x.max = to + alone;
    // Branches have reports at different places.
    chart.options.interaction.mode = branches.length > 1 ? 'nearest' : 'index';
    // A value or band slightly below zero must not leave half of the chart empty.
    if (definition.logarithm && !this.logarithmic) chart.options.scales.y.min = nearlyPositive(this.lines, x, from) ? 0 : undefined;
    Object.assign(chart.options.plugins.shading, {phases: series.phases(), alarms: series.alarms(), onset: series.onset()});
    chart.data.datasets = datasets(branches, this.lines, {x, from, logarithmic: this.logarithmic});
    chart.update('none');
  }

  /** How the lines of each branch are dashed, if there are several. */
  branchMarks() {
    const {branches} = this.series;
    if (branches.length < 2) return [];
    return branches.map(({name}, number) => {
      const mark = el('i', {class: 'branch'});
      const dash = dashOf(number);
      let at = 0;
      const stops = dash.flatMap((length, i) => [`${i % 2 ? 'transparent' : 'currentColor'} ${at}px ${at += length}px`]);
      mark.style.background = stops.length > 0 ? `repeating-linear-gradient(90deg, ${stops.join(', ')})` : 'currentColor';
      return el('li', {}, mark, name || 'no branch');
    });
  }

  start() {
    this.chart = new Chart(this.canvas, {
      type: 'line',
      data: {datasets: []},
      plugins: [shading],
      options: {
        animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false, spanGaps: false,
        interaction: {mode: 'index', intersect: false, axis: 'x'},
        scales: scales(this.definition, this.axis, this.logarithmic),
        plugins: {legend: {display: false}, tooltip: tooltip(this.series), shading: {}},
      },
    });
  }

  /** The chart as text, for screen readers. */
  summary() {
    if (this.lines.length === 0) return `${this.definition.title}: ${this.definition.empty}`;
    const {axis} = this.series;
    const [from, to] = this.series.range('all');
    const newest = this.lines.map((drawn) => {
      const last = drawn.values.findLastIndex((value) => Number.isFinite(value));
      return `${drawn.label} ${drawn.text(drawn.values[last], drawn.band ? drawn.band[last] : undefined)}`;
    });
    return `${this.definition.title}, ${this.unit()}, over ${axis === 'step' ? 'steps' : axis} ${integer(from)} to ${integer(to)}. Newest: ${newest.join(', ')}.`;
  }

  renderTable() {
    while (this.details.childElementCount > 1) this.details.lastChild.remove();
    if (!this.details.open || this.lines.length === 0) return;
    const {step, tokens, phase, branch} = this.series.columns;
    const overTokens = this.series.axis === 'tokens';
    const several = this.series.branches.length > 1;
    const rows = [];
    for (let i = step.length - 1; i >= 0 && rows.length < SHOWN_REPORTS; --i) {
      const place = [integer(step[i]), ...(overTokens ? [integer(tokens[i])] : []), words(phase[i]), ...(several ? [branch[i]] : [])];
      rows.push([...place, ...this.lines.map((drawn) => drawn.text(drawn.values[i], drawn.band ? drawn.band[i] : undefined))]);
    }
    const caption = `${this.unit()}; ± is a standard error` + (step.length > rows.length ? `; the newest ${rows.length} of ${step.length} reports` : '');
    this.details.append(el('div', {class: 'scroll'}, table(caption, ['step', ...(overTokens ? ['tokens'] : []), 'phase', ...(several ? ['branch'] : []), ...this.lines.map((drawn) => drawn.label)], rows)));
  }
}
