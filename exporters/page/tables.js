// The tables of the newest report: tasks, sizes, layers, averages, outlook, cost, events.

const SHOWN_LAYERS = 12;
const SHOWN_EVENTS = 8;

function signed(value, stderr, unit = '') {
  if (!isNumber(value)) return el('td', {}, DASH);
  const sure = isNumber(stderr) && Math.abs(value) > 2 * stderr;
  const text = `${value > 0 ? '+' : ''}${isNumber(stderr) ? plusMinus(value, stderr) : number(value, 3)}${unit}`;
  return el('td', {class: sure ? (value < 0 ? 'better' : 'worse') : null}, text);
}

/** The unit that a loss is the mean over. A classifier's closure returns one loss per example. */
const lossUnit = (report) => report.probe_examples > 0 ? 'example' : 'token';

/** The watched quantizer's most expensive layers, by their share of the predicted loss increase or, without a prediction, by their output error. */
function worstLayers(report) {
  const entry = watched(report);
  if (!entry || !(entry.layers || []).length) return {entry, layers: [], byCost: false};
  const cost = (layer) => (layer.gradient_term_nats || 0) + (layer.curvature_term_nats || 0);
  const byCost = !entry.prediction_detail && entry.layers.some((layer) => isNumber(layer.curvature_term_nats));
  const rank = (layer) => byCost ? cost(layer) : layer.output_error_ratio || 0;
  const layers = [...entry.layers].sort((a, b) => rank(b) - rank(a)).slice(0, SHOWN_LAYERS).map((layer) => ({...layer, cost: cost(layer)}));
  return {entry, layers, byCost};
}

/** The quantizer of the verdict, else the first one with a measured error. */
function watched(report) {
  const entries = report.quantization || [];
  const verdict = report.verdict || {};
  return entries.find((entry) => quantizerName(entry) === quantizerName(verdict)) ||
      entries.find((entry) => isNumber(entry.error_ratio)) || entries[0];
}

/** The newest shadow cooldown's prediction for the watched quantizer, if there is one. */
function predictedError(report) {
  const end = report.predicted_end;
  if (!end || end.status !== 'ok') return undefined;
  const entry = watched(report) || {};
  return (end.quantization || []).find((error) => quantizerName(error) === quantizerName(entry));
}

function predictionTable(report) {
  const end = report.predicted_end;
  const rows = end.quantization.map((error) => {
    const now = (report.quantization || []).find((entry) => quantizerName(entry) === quantizerName(error)) || {};
    return [quantizerName(error), percent(now.error_ratio), percent(error.error_ratio),
            isNumber(error.error_low_ratio) ? `${percent(error.error_low_ratio)} to ${percent(error.error_high_ratio)}` : DASH];
  });
  return table(`E at the end of a decay of ${integer(end.decay_steps)} steps, predicted by a shadow cooldown from step ${integer(end.step)}`,
               ['quantizer', 'now', 'at the end', '95 % interval'], rows);
}

function layersTable(report) {
  const {entry, layers, byCost} = worstLayers(report);
  if (layers.length === 0) return el('p', {class: 'note'}, 'No layer has been measured yet.');
  const traces = new Map(((report.curvature || {}).layers || []).map((layer) => [layer.name, layer.trace]));
  const most = Math.max(...layers.map((layer) => byCost ? layer.cost : layer.output_error_ratio || 0));
  const rows = layers.map((layer) => {
    const bar = el('span', {class: 'bar', role: 'presentation'});
    bar.style.width = `${Math.max(0, 100 * (byCost ? layer.cost : layer.output_error_ratio || 0) / most) || 0}%`;
    const cells = [percent(layer.output_error_ratio), el('td', {class: 'more'}, number(traces.get(layer.name), 3))];
    if (byCost) cells.push(number(layer.cost, 3));
    return [layer.stacked ? `${layer.name} (${integer(layer.stacked)})` : layer.name, ...cells, el('td', {class: 'track'}, bar)];
  });
  const name = quantizerName(entry);
  const trace = el('th', {scope: 'col', class: 'more'}, 'Hessian trace');
  const columns = ['layer', 'output error', trace, ...(byCost ? ['loss increase, nats'] : []), el('td', {class: 'track'})];
  const caption = byCost ? `${name}: layers by the loss increase that gradient and curvature predict, g'd + d'Hd/2`
                         : `${name}: layers by the relative squared error of their output`;
  const left = entry.layers.length - layers.length;
  return el('div', {}, el('div', {class: 'scroll'}, table(caption, columns, rows)),
            left > 0 ? el('p', {class: 'note'}, `${left} more in the journal.`) : '', predictionNote(entry));
}

/** A note with the predicted total of the layers' shares, and the loss increase measured on the same batch. */
function predictionNote(entry) {
  if (entry.prediction_detail) return el('p', {class: 'note'}, `Layers are not ranked by the loss increase: ${entry.prediction_detail}.`);
  if (!isNumber(entry.predicted_delta_nats)) return '';
  return el('p', {class: 'note'}, `Predicted for the whole: ${number(entry.predicted_delta_nats, 3)} nats. ` +
      `Measured on the same batch: ${plusMinus(entry.curvature_batch_delta_nats, entry.curvature_batch_delta_stderr_nats)} nats.`);
}

/** The tasks of a checkpoint, without quantization and with each quantizer, and the mean of their accuracies. */
function tasksTable(report) {
  const entries = (report.quantization || []).filter((entry) => (entry.tasks || []).length > 0);
  const score = ({metric, value, value_stderr: stderr}) => metric === 'perplexity' ? plusMinus(value, stderr) : percent(value, stderr);
  const quantized = (task) => {
    if (!isNumber(task.degradation_ratio)) return score(task);
    const {degradation_ratio: lost, degradation_stderr: stderr} = task;
    const sure = isNumber(stderr) && Math.abs(lost) > 2 * stderr;
    return el('td', {class: sure ? (lost > 0 ? 'worse' : 'better') : null}, `${score(task)}, D ${percent(lost, stderr)}`);
  };
  const rows = (report.tasks || []).map((task, i) => [
    `${task.task} ${task.metric}`, integer(task.examples), score(task),
    ...entries.map((entry) => quantized(entry.tasks[i] || {}))]);
  if (isNumber(report.probe_accuracy_ratio)) {
    rows.push(['mean acc', '', percent(report.probe_accuracy_ratio, report.probe_accuracy_stderr), ...entries.map((entry) => quantized({
      value: entry.accuracy_ratio, degradation_ratio: entry.accuracy_degradation_ratio, degradation_stderr: entry.accuracy_degradation_stderr}))]);
  }
  return el('div', {class: 'scroll'},
            table('Degradation D = (Acc(W) − Acc(Ŵ)) / (1 − Acc(W)), with the standard error of the same examples',
                  ['task', 'examples', 'full precision', ...entries.map(quantizerName)], rows));
}

/** The quantizers whose size was measured, smallest first. */
const sized = (report) => (report.quantization || []).filter((entry) => entry.status === 'ok' && isNumber(entry.artifact_bytes) && isNumber(entry.delta_nats))
    .sort((a, b) => a.artifact_bytes - b.artifact_bytes);

/** Loss against size: each quantizer, and of those that lose less in no more bytes the one that loses least. */
function sizesTable(report) {
  const entries = sized(report);
  const error = (a, b) => Math.hypot(a.delta_stderr_nats || 0, b.delta_stderr_nats || 0);
  const better = (entry) => entries.filter((other) => other.artifact_bytes <= entry.artifact_bytes &&
                                                      entry.delta_nats - other.delta_nats > 2 * error(entry, other))
      .sort((a, b) => a.delta_nats - b.delta_nats)[0];
  // The increase is paired; a quantizer's own loss may be of fewer tokens than another's.
  const loss = (entry) => report.probe_loss_nats + entry.delta_nats;
  const perByte = isNumber(report.bytes_per_token) ? ['bits a byte'] : [];
  return el('div', {class: 'scroll'},
            table('Codes compressed to their entropy; what has no codes in 16 bits an element',
                  ['quantizer', 'MB', 'bits a weight', 'loss', ...perByte, 'beaten by'],
                  entries.map((entry) => [quantizerName(entry), (entry.artifact_bytes / 1e6).toFixed(3), number(entry.entropy_bits, 4), number(loss(entry), 5),
                                          ...perByte.map(() => number(loss(entry) / Math.LN2 / report.bytes_per_token, 5)),
                                          better(entry) ? quantizerName(better(entry)) : ''])));
}

function averageName(average) {
  if (average.kind === 'exponential') return `exponential, decay ${number(average.decay, 3)}`;
  if (average.kind === 'merge' && !average.shape) return 'merges';
  return `last ${average.window} snapshots` + (average.snapshots < average.window ? ` (${average.snapshots} so far)` : '') +
      (average.shape ? `, weights of a ${average.shape === 'one_minus_sqrt' ? '1 − sqrt' : words(average.shape)} decay` : '');
}

// The averages with the lowest loss, in full precision and with each quantizer; '' if there is nothing to choose from.
function leastOfAverages(averages) {
  const measured = averages.filter((average) => average.status === 'ok' && isNumber(average.loss_nats));
  if (measured.length < 2) return '';
  const least = (loss) => averageName(measured.filter((average) => isNumber(loss(average))).sort((a, b) => loss(a) - loss(b))[0]);
  const entryOf = (average, name) => (average.quantization || []).find((entry) => quantizerName(entry) === name && isNumber(entry.loss_nats)) || {};
  const names = new Set(measured.flatMap((average) => (average.quantization || []).filter((entry) => isNumber(entry.loss_nats)).map(quantizerName)));
  return [`Lowest loss: ${least((average) => average.loss_nats)}`,
          ...[...names].map((name) => `with ${name}: ${least((average) => entryOf(average, name).loss_nats)}`)].join('; ') + '.';
}

/** The paired change, or the difference of the losses if it was not measured on the same tokens. */
function averagingChange(averaged, now) {
  if (isNumber(averaged.change_nats)) return signed(averaged.change_nats, averaged.change_stderr_nats);
  return signed(isNumber(averaged.loss_nats) && isNumber(now) ? averaged.loss_nats - now : undefined);
}

function averagingTable(report) {
  const averages = report.averaging || [];
  if (averages.length === 0) return el('p', {class: 'note'}, 'Averages of snapshots are not measured in this run.');
  const rows = [];
  for (const average of averages) {
    rows.push(groupRow(averageName(average), 4));
    if (average.status !== 'ok') {
      rows.push(el('tr', {}, el('td', {class: 'text', colspan: 4}, average.status_detail || words(average.status))));
      continue;
    }
    rows.push(['full precision', number(report.probe_loss_nats), number(average.loss_nats), averagingChange(average, report.probe_loss_nats)]);
    for (const entry of average.quantization || []) {
      const now = (report.quantization || []).find((other) => quantizerName(other) === quantizerName(entry)) || {};
      rows.push([quantizerName(entry), number(now.loss_nats), number(entry.loss_nats), averagingChange(entry, now.loss_nats)]);
    }
  }
  const least = leastOfAverages(averages);
  return el('div', {class: 'scroll'},
            table(`Loss in nats per ${lossUnit(report)}, of the current weights and of the average`, ['weights', 'now', 'averaged', 'change'], rows),
            least ? el('p', {class: 'note'}, least) : null);
}

function outlookTable(report) {
  const outlook = (report.verdict || {}).outlook || [];
  const raised = (report.mixed_precision || []).filter((mixed) => isNumber(mixed.delta_nats));
  const predicted = report.predicted_end && report.predicted_end.status === 'ok';
  if (outlook.length === 0 && raised.length === 0 && !predicted) return el('p', {class: 'note'}, 'The learning rate has not decayed yet.');
  const parts = [];
  if (predicted) parts.push(predictionTable(report));
  if (outlook.length > 0) {
    parts.push(table('Share of the loss decrease since the decay began that survives quantization', ['quantizer', 'gain kept', 'best stop'],
        outlook.map((entry) => [quantizerName(entry), percent(entry.gain_kept_ratio, entry.gain_kept_stderr),
                                isNumber(entry.minimum_step) ? `step ${integer(entry.minimum_step)}, lr ${learningRate(entry.minimum_learning_rate)}` : DASH])));
  }
  for (const mixed of raised) {
    parts.push(el('p', {class: 'note'}, `${mixed.raised_layers.join(', ')} at ${mixed.raised_bits} bits, the rest at ${mixed.bits} with ` +
        `${quantizerName(mixed)}: loss increase ${plusMinus(mixed.delta_nats, mixed.delta_stderr_nats)} nats at ${number(mixed.mean_bits, 3)} bits on average.`));
  }
  return el('div', {class: 'scroll'}, ...parts);
}

/** The training time lost to the monitor, with its interval. */
function overhead(status) {
  const allowed = `of ${percent(status.overhead_budget_ratio)} allowed`;
  if (!isNumber(status.overhead_low_ratio) || !isNumber(status.overhead_high_ratio)) {
    const count = status.overhead_comparisons || 0;
    return ['not measured yet', `(${count} ${count === 1 ? 'comparison' : 'comparisons'}) ${allowed}`];
  }
  return [percent(status.overhead_ratio), `(${percent(status.overhead_low_ratio)} to ${percent(status.overhead_high_ratio)}, 95${NBSP}%) ${allowed}`];
}

function costTable(report, status) {
  const parts = [];
  if (status) {
    parts.push(el('p', {class: 'budget'}, `Training time lost: ${overhead(status).join(' ')}. ` +
        `Memory: ${bytes(status.memory_bytes)} now, ${bytes(status.memory_peak_bytes)} at most, of ${bytes(status.memory_budget_bytes)}. ` +
        `The monitor may work ${percent(status.duty_cycle)} of the time.`));
  }
  const cost = Object.entries((report && report.cost) || {}).sort((a, b) => b[1] - a[1]);
  if (cost.length === 0) return el('div', {}, ...parts, el('p', {class: 'note'}, 'No snapshot has been measured yet.'));
  const stall = cost.find(([name]) => name === 'stall');
  const beside = cost.filter(([name]) => name !== 'stall');
  const most = Math.max(...beside.map(([, seconds]) => seconds));
  const total = beside.reduce((sum, [, seconds]) => sum + seconds, 0);
  const rows = beside.map(([name, seconds]) => {
    const bar = el('span', {class: 'bar', role: 'presentation'});
    bar.style.width = `${100 * seconds / most}%`;
    return [words(name), duration(seconds), el('td', {class: 'track'}, bar)];
  });
  const caption = `The newest snapshot: ${duration(total)} beside training` + (stall ? `, and training waited ${duration(stall[1])}` : '');
  return el('div', {}, ...parts, el('div', {class: 'scroll'}, table(caption, ['part', 'time', el('td', {class: 'track'})], rows)));
}

function eventList(events) {
  if (events.length === 0) return el('p', {class: 'note'}, 'Nothing has happened yet.');
  const list = (some) => el('ul', {class: 'log'}, ...some.map((event) => el('li', {},
      el('span', {class: event.severity}, words(event.kind)), ` ${event.message} `,
      el('span', {class: 'meta'}, `step ${integer(event.step)}, `, age(event.time_unix_seconds, '')))));
  const newest = events.slice(-50).reverse();
  const earlier = newest.slice(SHOWN_EVENTS);
  return el('div', {}, list(newest.slice(0, SHOWN_EVENTS)),
            earlier.length > 0 ? el('details', {open: Boolean(byId('events').querySelector('details[open]'))}, el('summary', {}, `${earlier.length} earlier`), list(earlier)) : null);
}
