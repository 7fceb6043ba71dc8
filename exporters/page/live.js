// The source of a page's run: the HTTP API and a stream of events, or the data embedded in a file.

const RETRY_MS = 4000;

async function getJson(path, parameters) {
  const url = new URL(path, location.href);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== '' && value !== undefined) url.searchParams.set(name, value);
  }
  const answer = await fetch(url, {cache: 'no-store'});
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error || `${answer.status}`), {status: answer.status});
  serverClock.set(body.time_unix_seconds);
  return body;
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Shows the state of the connection, and since when the numbers are out of date. */
class Connection {
  constructor() {
    this.lostSince = null;
  }
  live(text = 'live') {
    this.lostSince = null;
    byId('banner').hidden = true;
    byId('connection').className = 'connection live';
    setText(byId('connection'), text);
  }
  lost(reason) {
    if (this.lostSince === null) this.lostSince = serverClock.now();
    const since = `Disconnected since ${clockTime(this.lostSince)}`;
    byId('connection').className = 'connection lost';
    setText(byId('connection'), 'disconnected');
    byId('banner').hidden = false;
    setText(byId('banner'), `${since}: the numbers below are from then. Reconnecting… ${reason ? `(${reason})` : ''}`.trim());
  }
}

/** Follows one run of a server. */
class LiveRun {
  constructor(view, run) {
    Object.assign(this, {view, run, connection: new Connection(), source: null, identity: null});
  }

  /** Reads the history, then listens. Retries after a failure. */
  async start() {
    while (true) {
      try {
        await this.readHistory();
        this.listen();
        return;
      } catch (error) {
        if (error.status === 404 || error.status === 400) {
          byId('empty').hidden = false;
          setText(byId('empty'), error.message);
          return;
        }
        if (error.status === 503) {
          this.view.render();
          this.connection.live('waiting for the run');
        } else {
          this.connection.lost(error.message);
        }
        await pause(RETRY_MS);
      }
    }
  }

  async readHistory() {
    const {view} = this;
    let more = true;
    while (more) {
      const page = await getJson('api/v1/reports', {after: view.series.newestSequence, series: 1, run: this.run});
      if (this.identity !== null && this.identity !== page.run_id) return this.begin(page.run_id);
      this.identity = page.run_id;
      page.reports.forEach((report) => view.series.add(report));
      more = page.more && page.reports.length > 0;
    }
    return undefined;
  }

  /** Restarts with an empty view: another run has replaced this one. */
  begin(identity) {
    this.identity = identity;
    this.view.clear();
    return this.readHistory();
  }

  listen() {
    const {view} = this;
    const url = new URL('api/v1/events', location.href);
    // Asks for the newest report again, with its layers, and for past events.
    url.searchParams.set('after', Math.max(0, view.series.newestSequence - 1));
    url.searchParams.set('after_event', '0');
    url.searchParams.set('layers', '1');
    if (this.run) url.searchParams.set('run', this.run);
    view.events = [];
    this.source = new EventSource(url);
    this.source.addEventListener('report', (message) => this.onReport(JSON.parse(message.data)));
    this.source.addEventListener('event', (message) => {
      view.events.push(JSON.parse(message.data).event);
      view.changed();
    });
    this.source.addEventListener('status', (message) => this.onStatus(JSON.parse(message.data)));
    this.source.addEventListener('error', () => this.onError());
  }

  onReport(report) {
    this.view.series.add(report);
    this.view.newest = report;
    this.view.changed();
  }

  onStatus(entry) {
    serverClock.set(entry.time_unix_seconds);
    this.connection.live(entry.status.health === 'stopped' ? 'run ended' : 'live');
    if (entry.run.run_id !== this.identity || (this.attempt !== undefined && this.attempt !== entry.run.attempt)) {
      this.attempt = entry.run.attempt;
      return this.restart(entry.run.run_id !== this.identity);
    }
    this.attempt = entry.run.attempt;
    this.view.setStatus(entry);
    if (this.view.newest === null && entry.newest_sequence === 0) this.view.render();
    return undefined;
  }

  restart(anew) {
    this.source.close();
    if (anew) {
      this.identity = null;
      this.view.clear();
    }
    this.start();
  }

  /** The browser reconnects by itself, unless the server refused. */
  onError() {
    this.connection.lost();
    if (this.source.readyState !== EventSource.CLOSED) return;
    this.source.close();
    setTimeout(() => this.start(), RETRY_MS);
  }
}

/** Shows the run embedded in this file. */
function showFile(data) {
  ages.live = false;
  const view = new RunView(data.name);
  byId('home').removeAttribute('href');
  byId('connection').className = 'connection quiet';
  setText(byId('connection'), `as of ${dateTime(data.time_unix_seconds)}`);
  view.show();
  data.reports.forEach((report) => view.series.add(report));
  view.newest = data.newest;
  view.events = data.events.map((entry) => entry.event);
  view.setStatus(data.status);
  view.render();
}
