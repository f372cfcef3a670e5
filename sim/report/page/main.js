// Brings the parts together, and listens to buttons and keys.

function showLegend(model, tide, event) {
  const kinds = model.categories.length;
  document.getElementById('legend').replaceChildren(...[...tide.series].reverse().map(c => {
    const key = make('span');
    key.append(swatch(categoryColors[model.categories[c]]), model.categories[c] + ' ',
               make('b', prettyBytes(model.count ? model.byCategory[event * kinds + c] : 0)));
    return key;
  }));
}

function showNow(model, tide, event) {
  if (model.count === 0) return 'Nothing is allocated in this run.';
  const what = model.isAlloc[event] ? 'allocates' : 'frees';
  const id = model.eventStorage[event];
  const parts = [`${prettyBytes(model.live[event])} (${grouped(model.live[event])} B) live`,
                 `event ${grouped(event)}` + (model.timed ? ` at ${prettyTime(model.times[event])}` : ''),
                 `step ${model.step(event)}`, `${model.work(event)} ${what} ${model.name(id)}`];
  if (model.eventOp[event] < 0) parts[3] = `${model.name(id)} is there from the start`;
  return (event === model.peak ? '▼ peak · ' : '') + parts.join(' · ') + (tide.held ? ' · cursor held, click to let go' : '');
}

function showPhaseKeys(model) {
  const seen = new Set(model.ops.phase);
  document.getElementById('phases').replaceChildren(...model.phases.flatMap((name, i) => {
    if (!seen.has(i)) return [];
    const key = make('span');
    key.append(swatch(phaseColors[name]), name);
    return [key];
  }));
}

function main(models) {
  const overlay = new Overlay(models), table = new LiveTable(models[0]);
  let lives = null;
  const follow = event => {
    table.show(event);
    runs.show(event, tide.axis);
    showLegend(tide.model, tide, event);
    document.getElementById('now').textContent = showNow(tide.model, tide, event);
    if (lives && lives.atCursor) lives.update(); else if (lives) lives.draw();
  };
  const figures = model => {
    showCards(model);
    showCosts(model);
    showTextbook(model);
    showPhaseKeys(model);
  };
  // Another run, at the moment where the cursor stands.
  const choose = i => {
    if (i >= models.length || i === overlay.chosen) return;
    const cursor = overlay.eventAt(i, tide.model.count ? tide.model.x(tide.cursor, tide.axis) : 0, tide.axis);
    overlay.choose(i);
    tide.take(models[i], Math.max(cursor, 0));
    table.model = models[i];
    figures(models[i]);
    tide.refresh();
    follow(tide.cursor);
  };
  const runs = new RunTable(overlay, choose);
  const tide = new Tide(overlay, follow, () => { if (lives) lives.update(); });
  lives = new Lives(tide);
  figures(models[0]);
  lives.update();
  follow(tide.cursor);

  const pressed = () => {
    const press = (id, is) => document.getElementById(id).setAttribute('aria-pressed', is);
    for (const axis of ['events', 'time']) press('axis-' + axis, tide.axis === axis);
    press('lives-cursor', lives.atCursor);
    press('lives-window', !lives.atCursor);
  };
  const setLives = atCursor => { lives.atCursor = atCursor; lives.update(); pressed(); };
  const actions = {
    'lives-cursor': () => setLives(true), 'lives-window': () => setLives(false),
    'axis-events': () => { tide.setAxis('events'); pressed(); }, 'axis-time': () => { tide.setAxis('time'); pressed(); },
    'zoom-in': () => tide.zoom(0.5), 'zoom-out': () => tide.zoom(2), 'zoom-all': () => tide.all(),
    'to-peak': () => { tide.setCursor(tide.model.peak); tide.reveal(); },
    theme: () => {
      setTheme(isDark() ? 'light' : 'dark');
      tide.graph.updateOptions({gridLineColor: css('--line'), axisLineColor: css('--line')});
      lives.draw();
    },
  };
  for (const [id, act] of Object.entries(actions)) document.getElementById(id).addEventListener('click', act);
  document.getElementById('axis-time').disabled = !tide.timed;
  pressed();

  const move = by => { tide.setCursor(tide.cursor + by); tide.reveal(); };
  const at = x => tide.model.eventAt(x, tide.axis);
  const jump = () => Math.max(1, Math.round((at(tide.window[1]) - at(tide.window[0])) / 100));
  const keys = {
    ArrowLeft: e => move(e.shiftKey ? -jump() : -1), ArrowRight: e => move(e.shiftKey ? jump() : 1),
    Home: () => move(-tide.model.count), End: () => move(tide.model.count), p: actions['to-peak'], '+': actions['zoom-in'],
    '=': actions['zoom-in'], '-': actions['zoom-out'], 0: actions['zoom-all'], e: actions['axis-events'],
    m: actions['axis-time'], c: actions['lives-cursor'], w: actions['lives-window'], t: actions.theme,
  };
  models.forEach((_, i) => { keys[i + 1] = () => choose(i); });
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.altKey || e.metaKey || e.target.tagName === 'INPUT' || e.target.closest('.scroll')) return;
    const act = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!act) return;
    e.preventDefault();
    act(e);
  });
  Object.assign(tidemark, {models, overlay, runs, choose, tide, table, lives, ready: true});
  document.documentElement.dataset.ready = 'yes';
}

readBytes().then(bytes => {
  const runs = parts(bytes);
  const models = [];
  for (let i = 0; i < runs.length; i += 2) models.push(new Model(readRun(runs[i], runs[i + 1])));
  main(models);
});
