// The parts of a sweep's page, and what listens.

function showPoint(points, i) {
  const box = document.getElementById('point');
  box.replaceChildren();
  if (i === undefined) return;
  const item = (name, value) => {
    if (value === '') return;
    const pair = box.appendChild(make('div'));
    pair.append(make('span', name, 'quiet'), make('b', value));
  };
  for (const axis of points.axes) item(axis, points.text(axis, i));
  const figure = name => points.at.has(name) ? points.pretty(name, points.number(name, i)) : '';
  item('peak', figure('peak_bytes'));
  item('in', points.text('peak_op', i));
  item('step time', points.number('time_step_ns', i) > 0 ? figure('time_step_ns') : '');
  item('FLOPs', figure('flops_total'));
  item('recomputed', figure('recompute_overhead'));
  item('fits', {true: 'yes', false: 'no'}[points.text('fits', i)] ?? '');
  item('front', points.onFront.has(i) ? 'yes' : 'no');
  const kinds = Object.keys(categoryColors).filter(kind => points.at.has(`peak_${kind}_bytes`));
  const total = points.number('peak_bytes', i);
  const bar = box.appendChild(make('div', '', 'stack'));
  for (const kind of kinds) {
    const bytes = points.number(`peak_${kind}_bytes`, i);
    if (!(bytes > 0)) continue;
    const part = bar.appendChild(make('i'));
    part.style.width = 100 * bytes / total + '%';
    part.style.background = categoryColors[kind];
    part.title = `${kind} ${prettyBytes(bytes)}`;
  }
}

function showFront(points, onPick) {
  const table = document.getElementById('front');
  const columns = [...points.axes, 'peak_bytes', 'time_step_ns', 'flops_total', 'recompute_overhead', 'fits']
    .filter(name => points.at.has(name));
  const head = table.appendChild(make('tr'));
  const isNumber = name => points.figures.includes(name);
  for (const name of columns) head.append(make('th', name, isNumber(name) ? 'number' : ''));
  for (const i of points.front.slice(0, 500)) {
    const row = table.appendChild(make('tr'));
    for (const name of columns)
      row.append(make('td', isNumber(name) ? points.pretty(name, points.number(name, i)) : points.text(name, i), isNumber(name) ? 'number' : ''));
    row.addEventListener('mouseenter', () => onPick(i));
  }
}

function showSweepCards(points) {
  const cards = document.getElementById('cards');
  const card = (name, figure, note) => {
    const box = cards.appendChild(make('div', '', 'card'));
    box.append(make('span', name, 'name'), make('b', figure), make('span', note));
  };
  const failed = points.count - points.good.length, over = points.good.filter(i => !points.fits(i)).length;
  const settings = i => points.axes.map(axis => `${axis}=${points.text(axis, i)}`).join(', ');
  card('Points', grouped(points.count), [failed ? `${grouped(failed)} with an error` : '', over ? `${grouped(over)} do not fit` : '']
    .filter(text => text).join(', ') || 'all of them fit');
  card('On the front', grouped(points.front.length), 'no other point has less peak and no more time');
  const least = name => points.good.reduce((a, b) => a === undefined || points.number(name, b) < points.number(name, a) ? b : a, undefined);
  const low = least('peak_bytes');
  if (low !== undefined) card('Lowest peak', points.pretty('peak_bytes', points.number('peak_bytes', low)), settings(low));
  const fast = least('time_step_ns');
  if (fast !== undefined && points.number('time_step_ns', fast) > 0)
    card('Shortest step', points.pretty('time_step_ns', points.number('time_step_ns', fast)), settings(fast));
}

function choices(id, names, chosen, act) {
  const select = document.getElementById(id);
  for (const name of names) {
    const option = select.appendChild(make('option', name || '(none)'));
    option.value = name;
  }
  select.value = chosen;
  select.addEventListener('change', () => act(select.value));
}

function main(points) {
  document.getElementById('study').textContent = points.study;
  document.getElementById('axes').textContent = points.axes.map(axis => `${axis}: ${grouped(points.values.get(axis).length)} values`).join(' · ');
  showSweepCards(points);
  const pick = i => { scatter.pick(i); showPoint(points, i); };
  const scatter = new Scatter(points, i => showPoint(points, i));
  const heat = new HeatMap(points, pick);
  const columns = [...points.figures, ...points.axes];
  for (const part of ['x', 'y']) choices('scatter-' + part, columns, scatter[part], name => { scatter[part] = name; scatter.draw(); });
  choices('scatter-color', points.axes, scatter.color, name => { scatter.color = name; scatter.draw(); });
  choices('heat-across', points.axes, heat.across, name => { heat.across = name; heat.draw(); });
  choices('heat-down', ['', ...points.axes], heat.down, name => { heat.down = name; heat.draw(); });
  choices('heat-value', points.figures, heat.value, name => { heat.value = name; heat.draw(); });
  showFront(points, pick);
  scatter.draw();
  heat.draw();
  showPoint(points, scatter.picked);
  const turn = () => { setTheme(isDark() ? 'light' : 'dark'); scatter.draw(); heat.draw(); };
  document.getElementById('theme').addEventListener('click', turn);
  document.addEventListener('keydown', e => {
    if (e.key.toLowerCase() === 't' && !e.ctrlKey && !e.altKey && !e.metaKey && e.target.tagName !== 'SELECT') turn();
  });
  Object.assign(tidemark, {points, scatter, heat, ready: true});
  document.documentElement.dataset.ready = 'yes';
}

readBytes().then(bytes => {
  const [head, csv] = parts(bytes).map(part => new TextDecoder().decode(part));
  main(new Points(JSON.parse(head), csv));
});
