// The live set at the cursor, and the figures that stand still.

class LiveTable {
  constructor(model) {
    this.model = model;
    this.event = model.peak;
    this.most = 200;
    this.columns = [
      {name: 'tensor', value: id => this.model.name(id)},
      {name: 'op', value: id => this.model.opOfBirth(id) || '(at the start)', show: (op, id) => this.within(op, id)},
      {name: 'layer', value: id => this.model.layer(id)},
      {name: 'category', value: id => this.model.categories[this.model.storages.category[id]]},
      {name: 'bytes', value: id => this.model.storages.bytes[id], number: true, show: grouped},
      {name: 'birth', value: id => this.model.birth[id], number: true, show: event => this.when(event)},
      {name: 'death', value: id => this.model.death[id], number: true, show: event => this.when(event)},
      {name: 'held by', value: id => this.model.heldBy(id, this.event), show: (text, id) => text.replace(`of ${this.model.layer(id)}.`, 'of ')},
    ];
    this.sort = {column: this.columns[4], up: false};
    this.body = document.querySelector('#live tbody');
    this.filter = document.getElementById('filter');
    this.filter.addEventListener('input', () => this.show(this.event));
    const row = document.querySelector('#live thead').appendChild(make('tr'));
    for (const column of this.columns) {
      const head = row.appendChild(make('th', '', column.number ? 'number' : ''));
      column.head = head;
      head.appendChild(make('button', column.name)).addEventListener('click', () => {
        this.sort = {column, up: this.sort.column === column ? !this.sort.up : !column.number};
        this.show(this.event);
      });
    }
  }

  // An op's name without its layer's, which stands beside it.
  within(op, id) {
    const layer = this.model.layer(id);
    return layer && op.startsWith(layer + '.') ? op.slice(layer.length + 1) : op;
  }

  when(event) {
    if (event >= this.model.count) return 'never';
    if (this.model.eventOp[event] < 0) return 'start';
    return this.model.timed ? prettyTime(this.model.times[event]) : 'event ' + grouped(event);
  }

  passes() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(word => word);
    if (words.length === 0) return undefined;
    const text = [0, 1, 2, 3, 7].map(i => this.columns[i].value);
    return id => {
      const all = text.map(value => value(id)).join('\n').toLowerCase();
      return words.every(word => all.includes(word));
    };
  }

  show(event) {
    this.event = event;
    const {model, sort} = this;
    const bySize = sort.column.name === 'bytes' && !sort.up;
    let ids = model.liveSet(event, bySize ? this.most : Infinity, this.passes());
    if (!bySize) {
      const keys = new Map(ids.map(id => [id, sort.column.value(id)]));
      const order = (a, b) => keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0;
      ids.sort((a, b) => sort.up ? order(a, b) : order(b, a));
      ids = ids.slice(0, this.most);
    }
    for (const column of this.columns)
      column.head.setAttribute('aria-sort', column !== sort.column ? 'none' : sort.up ? 'ascending' : 'descending');
    const largest = Math.max(...ids.map(id => model.storages.bytes[id]), 1);
    this.body.replaceChildren(...ids.map(id => this.row(id, largest)));
    const total = model.count ? model.alive[event] : 0;
    document.getElementById('live-count').textContent =
      `${grouped(total)} tensor${total === 1 ? '' : 's'}, ${prettyBytes(model.count ? model.live[event] : 0)}` +
      (ids.length < total ? `; ${grouped(ids.length)} of them below` : '');
  }

  row(id, largest) {
    const row = make('tr');
    for (const column of this.columns) {
      const value = column.value(id);
      const cell = row.appendChild(make('td', column.show ? column.show(value, id) : value, column.number ? 'number' : ''));
      if (!column.number) cell.title = value;
      if (column.name === 'category') cell.prepend(swatch(categoryColors[value]));
      if (column.name === 'bytes') {
        const meter = make('span', '', 'meter');
        meter.style.width = Math.max(1, 44 * value / largest) + 'px';
        meter.style.background = categoryColors[this.columns[3].value(id)];
        cell.prepend(meter);
      }
    }
    return row;
  }
}

function showCards(model) {
  const {summary} = model, last = summary.steps[summary.steps.length - 1];
  const cards = document.getElementById('cards');
  cards.replaceChildren();
  const card = (name, figure, note, className = '') => {
    const box = cards.appendChild(make('div', '', 'card'));
    box.append(make('span', name, 'name'), make('b', figure, className), make('span', note));
  };
  document.getElementById('scenario').textContent = summary.scenario || 'Tidemark';
  document.getElementById('profile').textContent =
    [model.measured ? 'measured' : 'profile ' + summary.profile.preset, summary.parameters === null ? '' : grouped(summary.parameters) + ' parameters',
     `${grouped(summary.steps.length)} step${summary.steps.length === 1 ? '' : 's'}`, `${grouped(summary.ops)} ops`,
     `${grouped(summary.events)} allocations and frees`].filter(text => text).join(' · ');
  card('Peak', prettyBytes(summary.peak_bytes), `${grouped(summary.peak_bytes)} B · ${model.count ? model.work(model.peak) : ''}`);
  if (summary.fits !== null)
    card('Fits', summary.fits ? 'yes' : 'no',
         `${summary.margin_bytes === null ? '' : prettyBytes(Math.abs(summary.margin_bytes)) + (summary.fits ? ' below ' : ' above ')}` +
         (model.limit ? `the ${prettyBytes(model.limit.bytes)} of ${model.limit.name}` : ''), summary.fits ? 'good' : 'bad');
  if (summary.policy) card('Recompute', last.recompute_overhead === null ? 'yes' : '+' + percent(last.recompute_overhead) + ' FLOPs', summary.policy);
  if (summary.no_checkpoint_peak_bytes !== null)
    card('Without checkpointing', prettyBytes(summary.no_checkpoint_peak_bytes),
         percent(1 - summary.peak_bytes / summary.no_checkpoint_peak_bytes) + ' lower with it');
  if (summary.time_ns.step > 0)
    card('Step time', prettyTime(summary.time_ns.step), summary.mfu === null ? '' : `MFU ${percent(summary.mfu)} · HFU ${percent(summary.hfu)}`);
  const warnings = document.getElementById('warnings');
  warnings.replaceChildren();
  for (const text of summary.warnings) warnings.append(make('p', '⚠ ' + text));
}

function showCosts(model) {
  const {summary} = model, table = document.getElementById('costs');
  table.replaceChildren();
  const add = (tag, cells) => {
    const row = table.appendChild(make('tr'));
    cells.forEach((text, i) => row.append(make(tag, text, i === 0 ? '' : 'number')));
    return row;
  };
  add('th', ['last step', 'highest level', 'matrix FLOPs', 'other FLOPs', 'time']);
  const flops = value => value === undefined || value === null || Number(value) === 0 ? '' : prettyFlops(value);
  for (const phase of model.phases) {
    const peak = summary.phase_peaks[phase];
    if (peak === undefined || peak === null) continue;
    const time = summary.time_ns[phase];
    const row = add('td', [phase, prettyBytes(peak), flops(summary.flops[phase]), flops(summary.other_flops[phase]),
                           time ? prettyTime(time) : '']);
    row.firstChild.prepend(swatch(phaseColors[phase]));
  }
  add('th', ['total', prettyBytes(Math.max(...Object.values(summary.phase_peaks).map(Number))), flops(summary.flops.total),
             flops(summary.other_flops.total), summary.time_ns.step ? prettyTime(summary.time_ns.step) : '']);
  document.getElementById('cost-notes').textContent = 'Forward includes the loss.';
}

function showTextbook(model) {
  const box = document.getElementById('textbook'), book = model.book;
  box.replaceChildren();
  if (!book) return;
  const table = make('table');
  const difference = model.summary.peak_bytes - book.formula;
  box.append(make('h2', 'The textbook formula'),
             make('p', `ceil(${book.layers}/${book.interval}) × ${prettyBytes(book.boundary)} + ${book.interval} × ` +
                       `${prettyBytes(book.layer)} = ${prettyBytes(book.formula)} (${grouped(book.formula)} B)`),
             make('p', difference === 0 ? 'The simulated peak is the same.' :
                  `The simulated peak is ${prettyBytes(Math.abs(difference))} ${difference > 0 ? 'higher' : 'lower'}:`), table);
  for (const reason of book.reasons) {
    const row = table.appendChild(make('tr'));
    row.append(make('td', (reason.bytes > 0 ? '+' : '') + prettyBytes(reason.bytes), 'number'), make('td', reason.text, 'wrap'));
  }
}
