// Chooses the view: a run embedded in the file, a server's only run, one of its runs, or the list
// of runs.

async function firstStatus() {
  const connection = new Connection();
  while (true) {
    try {
      const status = await getJson('api/v1/status', {});
      if (status.runs.length > 0) return status;
      byId('empty').hidden = false;
      setText(byId('empty'), 'There is no run yet. Waiting for the first one…');
      connection.live('waiting for a run');
    } catch (error) {
      connection.lost(error.message);
    }
    await pause(1000);
  }
}

async function main() {
  setInterval(renewAges, 1000);
  const data = byId('data');
  if (data) return showFile(JSON.parse(data.textContent));
  const run = new URLSearchParams(location.search).get('run') || '';
  const status = run ? null : await firstStatus();
  byId('empty').hidden = true;
  if (status && status.runs.length > 1) return new RunList().start(status);
  const view = new RunView(run || status.runs[0].name);
  view.show();
  return new LiveRun(view, run).start();
}

main();
