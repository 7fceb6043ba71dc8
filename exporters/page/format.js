'use strict';
// Numbers, ages and elements. Names of runs and layers are only used as text nodes, never as markup.

const NBSP = '\u00a0';
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const DASH = '–';

/** Formats with `digits` significant digits. Very small and very large numbers get an exponent. */
function number(value, digits = 4) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(digits - 2).replace('e+', 'e').replaceAll('-', '−');
  return Number(value.toPrecision(digits)).toLocaleString('en-US', {maximumSignificantDigits: digits}).replace('-', '−');
}

/** Rounds to the decimals that the standard error justifies, for example "4.68 ± 0.24". */
function plusMinus(value, stderr, scale = 1, digits = 4) {
  if (!isNumber(value)) return DASH;
  if (!isNumber(stderr) || stderr <= 0) return number(value * scale, digits);
  const decimals = Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(stderr * scale))));
  if (Math.abs(value * scale) >= 1e7) return number(value * scale, digits);
  return `${(value * scale).toFixed(decimals).replace('-', '−')}${NBSP}±${NBSP}${(stderr * scale).toFixed(decimals)}`;
}

const integer = (value) => isNumber(value) ? Math.round(value).toLocaleString('en-US') : DASH;
/** For example "210B" for 2.1e11. */
const compact = (value) => value.toLocaleString('en-US', {notation: 'compact', maximumSignificantDigits: 3});
const percent = (value, stderr) => isNumber(value) ? `${plusMinus(value, stderr, 100, 3)}${NBSP}%` : DASH;
const learningRate = (value) => isNumber(value) ? value.toExponential(2).replace('e+', 'e').replace('-', '−') : DASH;

function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds < 1e-3) return `${number(seconds * 1e6, 3)}${NBSP}µs`;
  if (seconds < 1) return `${number(seconds * 1e3, 3)}${NBSP}ms`;
  if (seconds < 90) return `${number(seconds, 3)}${NBSP}s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}${NBSP}min`;
  if (seconds < 172800) return `${number(seconds / 3600, 3)}${NBSP}h`;
  return `${Math.round(seconds / 86400)}${NBSP}days`;
}

function bytes(value) {
  if (!isNumber(value)) return DASH;
  if (value >= 2 ** 30) return `${number(value / 2 ** 30, 3)}${NBSP}GiB`;
  if (value >= 2 ** 20) return `${number(value / 2 ** 20, 3)}${NBSP}MiB`;
  return `${number(value / 2 ** 10, 3)}${NBSP}KiB`;
}

const clockTime = (seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB');
const dateTime = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';

/** As ShortName of ptqwatch/report.h: "gptq3", "gptq-nvfp4"; a method or format may say the bits. Tells quantizers apart. */
function quantizerName({method, bits, format}) {
  const plain = !format || format === (method === 'nf4' ? 'nf4' : 'int');
  const saysBits = /\d$/.test(method) || !(plain || format.startsWith('int'));
  return `${method || ''}${saysBits ? '' : bits}${plain ? '' : `-${format}`}`;
}

/** Which ranks have other parameters, or null if none have. */
function replicasText({replicas}) {
  if (!replicas || !replicas.diverged) return null;
  const who = replicas.minority ? `rank ${replicas.minority} unlike most` : 'without a majority';
  const where = replicas.parameter ? `, first in ${replicas.parameter}` : '';
  return `replicas differ since step ${integer(replicas.diverged_step)}: ${who}${where}`;
}

const words = (name) => (name || 'unknown').replaceAll('_', ' ');

/** Creates an element. Skips attributes whose value is null, undefined or false. Children are nodes or text. */
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') node.className = value;
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const byId = (id) => document.getElementById(id);
const fill = (id, ...children) => byId(id).replaceChildren(...children.filter((child) => child !== null));

/** Sets a text only if it differs, so that a live region announces only changes. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name that may break after its separators. */
const breakable = (name) => name.split(/(?<=[._/])|(?=\[)/).flatMap((part, i) => i > 0 ? [el('wbr'), part] : [part]);

/** A row above others that tells what they belong to. */
const groupRow = (name, columns) => el('tr', {class: 'group'}, el('th', {scope: 'rowgroup', colspan: columns}, name));

/** Creates a table. The first cell of a row is its header. `rows` are lists of texts or nodes, or rows as groupRow makes them. */
function table(caption, columns, rows) {
  return el('table', {},
      caption ? el('caption', {}, caption) : null,
      el('thead', {}, el('tr', {}, ...columns.map((column) => column instanceof Node ? column : el('th', {scope: 'col'}, column)))),
      el('tbody', {}, ...rows.map((row) => row instanceof Node ? row : el('tr', {},
          el('th', {scope: 'row', class: 'name'}, ...breakable(row[0])),
          ...row.slice(1).map((cell) => cell instanceof Node && cell.nodeName === 'TD' ? cell : el('td', {}, cell))))));
}

// The server's clock, because the browser's may differ. Between updates it advances with monotonic time.
const serverClock = {
  offset: null,
  set(unixSeconds) {
    if (isNumber(unixSeconds)) this.offset = unixSeconds - performance.now() / 1000;
  },
  now() {
    return this.offset === null ? Date.now() / 1000 : this.offset + performance.now() / 1000;
  },
};

// Ages are texts that a timer renews; [data-since] holds Unix seconds. A page that is not live shows the time instead.
const ages = {live: true};
function age(seconds, what) {
  if (!isNumber(seconds) || seconds <= 0) return el('span', {}, '');
  const node = el('time', {datetime: new Date(seconds * 1000).toISOString(), title: dateTime(seconds), 'data-since': seconds, 'data-what': what});
  renewAge(node);
  return node;
}
function renewAge(node) {
  const since = Number(node.dataset.since);
  const text = ages.live ? `${duration(Math.max(0, Math.round(serverClock.now() - since)))} ago` : `at ${dateTime(since)}`;
  setText(node, `${node.dataset.what || ''} ${text}`.trim());
}
function renewAges() {
  document.querySelectorAll('[data-since]').forEach(renewAge);
}
