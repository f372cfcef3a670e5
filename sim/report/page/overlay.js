// Several runs over each other: where an event of one stands among the events of another, their levels as lines, and the
// difference strip.

const runLetters = ['A', 'B', 'C', 'D'];
const runDashes = [[], [14, 3], [], [14, 3, 3, 3]];
const runColor = i => css('--run-' + runLetters[i].toLowerCase());

// Where the parts of a run begin: forward, backward and optimizer of each step, each time they come.
function milestones(model) {
  const parts = {initial: 0, forward: 0, loss: 0, recompute: 1, backward: 1, optimizer: 2};
  const out = new Map(), seen = new Map();
  let last = '';
  for (let i = 0; i < model.count; ++i) {
    const part = parts[model.phases[model.phase(i)]];
    if (part === undefined) continue;
    const key = `${model.step(i)} ${part}`;
    if (key === last) continue;
    last = key;
    const times = seen.get(key) ?? 0;
    seen.set(key, times + 1);
    out.set(`${key} ${times}`, i);
  }
  return out;
}

// A place among the events of one run as a place among those of another: where both begin the same part they meet, and
// between they are stretched. Runs of the same events meet in each.
class Meeting {
  constructor(a, b) {
    this.a = [0];
    this.b = [0];
    const there = milestones(b);
    for (const [key, at] of [...milestones(a), ['', a.count]]) {
      const other = key === '' ? b.count : there.get(key);
      if (other === undefined || at <= this.a[this.a.length - 1] || other <= this.b[this.b.length - 1]) continue;
      this.a.push(at);
      this.b.push(other);
    }
  }
  static map(from, to, x) {
    let low = 0, high = from.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (from[middle] <= x) low = middle; else high = middle;
    }
    const length = from[high] - from[low];
    return length > 0 ? to[low] + (x - from[low]) * (to[high] - to[low]) / length : to[low];
  }
  there(x) { return Meeting.map(this.a, this.b, x); }
  here(x) { return Meeting.map(this.b, this.a, x); }
}

class Overlay {
  constructor(models) {
    this.models = models;
    this.host = document.getElementById('strip');
    this.host.hidden = models.length < 2;
    this.choose(0);
  }

  choose(chosen) {
    this.chosen = chosen;
    this.meetings = this.models.map((model, i) => i === chosen ? null : new Meeting(this.models[chosen], model));
  }

  // Run i on the chosen one's axis: the place of an event, and the last event at or before a place (-1: none).
  x(i, event, axis) {
    if (axis === 'time') return this.models[i].times[event];
    return i === this.chosen ? event : this.meetings[i].here(event);
  }
  eventAt(i, x, axis) {
    const model = this.models[i];
    if (axis === 'time') return model.eventAt(x, axis);
    let event = i === this.chosen ? Math.floor(x) : Math.floor(this.meetings[i].there(x) + 1e-9);
    event = Math.min(event, model.count - 1);
    while (event + 1 < model.count && this.x(i, event + 1, axis) <= x) ++event;
    return event;
  }
  extent(axis) {
    return axis === 'time' ? [0, Math.max(...this.models.map(model => model.end))] : this.models[this.chosen].extent(axis);
  }
  highest() { return Math.max(...this.models.map(model => model.count ? model.live[model.peak] : 0)); }

  // The highest level in each of so many columns of the window.
  levels(i, [low, high], axis, columns) {
    const model = this.models[i], out = [];
    let before = this.eventAt(i, low - (high - low) / columns * 1e-6, axis);
    for (let column = 0; column < columns; ++column) {
      const last = this.eventAt(i, low + (column + 1) * (high - low) / columns, axis);
      const level = event => event < 0 ? 0 : model.live[event];
      out.push(last <= before ? level(before) : model.live[model.highest(before + 1, last)]);
      before = Math.max(before, last);
    }
    return out;
  }

  // How far run i is above the chosen one, least and most in each column. At one place both have done all their events
  // there; what rose and fell again there is compared besides.
  differences(i, [low, high], axis, columns) {
    const a = this.models[this.chosen], b = this.models[i], out = [];
    let at = this.eventAt(this.chosen, low, axis), to = this.eventAt(i, low, axis);
    const level = (model, event) => event < 0 ? 0 : model.live[event];
    const place = (run, model, event) => event < model.count ? this.x(run, event, axis) : Infinity;
    let nextA = place(this.chosen, a, at + 1), nextB = place(i, b, to + 1);
    for (let column = 0; column < columns; ++column) {
      const right = low + (column + 1) * (high - low) / columns;
      let now = level(b, to) - level(a, at), least = now, most = now;
      while (Math.min(nextA, nextB) <= right) {
        const x = Math.min(nextA, nextB) + 1e-9;
        let crestA = level(a, at), crestB = level(b, to);
        for (; nextA <= x; nextA = place(this.chosen, a, at + 1)) crestA = Math.max(crestA, a.live[++at]);
        for (; nextB <= x; nextB = place(i, b, to + 1)) crestB = Math.max(crestB, b.live[++to]);
        now = level(b, to) - level(a, at);
        least = Math.min(least, now, crestB - crestA);
        most = Math.max(most, now, crestB - crestA);
      }
      out.push([least, most]);
    }
    return out;
  }

  // The other runs' levels, and the chosen one's outline, over the tide.
  draw(context, area, tide) {
    const columns = Math.max(1, Math.round(area.w));
    for (let i = 0; i < this.models.length && this.models.length > 1; ++i) {
      const levels = this.levels(i, tide.window, tide.axis, columns);
      const path = () => {
        context.beginPath();
        levels.forEach((level, column) => {
          const y = tide.graph.toDomYCoord(level);
          context.lineTo(area.x + column, y);
          context.lineTo(area.x + column + 1, y);
        });
        context.stroke();
      };
      context.lineJoin = 'round';
      context.setLineDash([]);
      context.strokeStyle = css('--paper');
      context.globalAlpha = 0.75;
      context.lineWidth = 4;
      if (i !== this.chosen) path();
      context.globalAlpha = 1;
      context.lineWidth = i === this.chosen ? 1 : 1.8;
      context.strokeStyle = runColor(i);
      context.setLineDash(runDashes[i]);
      path();
      context.setLineDash([]);
      if (i !== this.chosen) this.drawPeak(context, area, tide, i);
    }
  }
  drawPeak(context, area, tide, i) {
    const model = this.models[i];
    if (model.count === 0) return;
    const x = tide.mark(model.peak, i);
    if (x < area.x || x > area.x + area.w) return;
    context.fillStyle = runColor(i);
    const y = tide.graph.toDomYCoord(model.live[model.peak]);
    context.beginPath();
    context.arc(x, y, 3.5, 0, 2 * Math.PI);
    context.fill();
    const right = x > area.x + area.w / 2;
    label(context, `${runLetters[i]} ${prettyBytes(model.live[model.peak])}`, x + (right ? -9 : 9), y - 10, right ? 'right' : 'left');
  }

  drawStrip(tide) {
    if (this.host.hidden) return;
    const {clientWidth: width, clientHeight: height} = this.host;
    const context = sharp(this.host.querySelector('canvas'), width, height);
    const area = tide.graph.getArea(), columns = Math.max(1, Math.round(area.w));
    const others = this.models.map((_, i) => i).filter(i => i !== this.chosen);
    const strips = others.map(i => this.differences(i, tide.window, tide.axis, columns));
    let low = 0, high = 0;
    for (const strip of strips) for (const [least, most] of strip) { low = Math.min(low, least); high = Math.max(high, most); }
    this.most = high;
    this.least = low;
    const span = high - low || 1, top = 8, bottom = height - 8;
    const y = value => bottom - (value - low) / span * (bottom - top);
    context.fillStyle = css('--row');
    context.fillRect(area.x, 0, area.w, height);
    context.strokeStyle = css('--quiet');
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(area.x, Math.round(y(0)) + 0.5);
    context.lineTo(area.x + area.w, Math.round(y(0)) + 0.5);
    context.stroke();
    strips.forEach((strip, k) => {
      context.fillStyle = runColor(others[k]);
      context.globalAlpha = 0.85;
      strip.forEach(([least, most], column) => {
        if (least === 0 && most === 0) return;
        const from = y(Math.max(most, 0)), to = y(Math.min(least, 0));
        if (strips.length === 1) context.fillRect(area.x + column, from, 1, Math.max(to - from, 1));
        else context.fillRect(area.x + column, y(most) - 1, 1, Math.max(y(least) - y(most), 2));
      });
      context.globalAlpha = 1;
    });
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillStyle = css('--quiet');
    const mark = (value, at) => context.fillText((value > 0 ? '+' : '') + prettyBytes(value), area.x - 5, at);
    if (high > 0) mark(high, Math.max(y(high), 9));
    if (low < 0) mark(low, Math.min(y(low), height - 9));
    if (y(0) - y(high) > 16 && y(low) - y(0) > 16 || high === 0 && low === 0) context.fillText('0', area.x - 5, y(0));
    context.fillStyle = css('--ink');
    const names = others.map(i => runLetters[i]).join(', ');
    label(context, high === 0 && low === 0 ? `${names} − ${runLetters[this.chosen]}: no difference here` :
          `${names} − ${runLetters[this.chosen]}`, area.x + 8, 12, 'left');
    if (this.models[this.chosen].count === 0) return;
    cursorLine(context, tide.mark(tide.cursor), height);
  }
}

// The runs in a table: what each holds at the cursor; a row chooses its run.
class RunTable {
  constructor(overlay, onChoose) {
    this.overlay = overlay;
    this.section = document.getElementById('runs');
    this.section.hidden = overlay.models.length < 2;
    if (this.section.hidden) return;
    const table = document.querySelector('#runs table');
    const head = table.appendChild(make('tr'));
    ['run', 'peak', 'to A', 'peak in', 'recomputed FLOPs', 'step time', 'alive at the cursor', 'to the shown'].forEach((name, i) =>
      head.append(make('th', name, i === 0 || i === 3 ? '' : 'number')));
    const first = overlay.models[0].summary.peak_bytes;
    this.rows = overlay.models.map((model, i) => {
      const {summary} = model, last = summary.steps[summary.steps.length - 1];
      const row = table.appendChild(make('tr'));
      const button = make('button', `${runLetters[i]}  ${model.label || 'Tidemark'}${model.measured ? ' (measured)' : ''}`);
      button.type = 'button';
      button.title = `Show this run (${i + 1})`;
      button.prepend(this.sample(i));
      row.append(make('td'));
      row.firstChild.append(button);
      row.addEventListener('click', () => onChoose(i));
      const difference = summary.peak_bytes - first;
      row.append(make('td', prettyBytes(summary.peak_bytes), 'number'),
                 make('td', i === 0 ? '' : difference === 0 ? 'equal' : signed(difference), 'number'),
                 make('td', model.count ? model.work(model.peak) : ''),
                 make('td', last.recompute_overhead ? '+' + percent(last.recompute_overhead) : '', 'number'),
                 make('td', summary.time_ns.step > 0 ? prettyTime(summary.time_ns.step) : '', 'number'),
                 make('td', '', 'number'), make('td', '', 'number'));
      return row;
    });
  }
  // Its line, drawn as over the tide.
  sample(i) {
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    line.setAttribute('width', 30);
    line.setAttribute('height', 9);
    line.innerHTML = `<line x1="0" x2="30" y1="5" y2="5" stroke="var(--run-${runLetters[i].toLowerCase()})" stroke-width="2.4"
      stroke-dasharray="${runDashes[i].join(' ')}"/>`;
    return line;
  }
  show(cursor, axis) {
    if (this.section.hidden) return;
    const {overlay} = this, {chosen, models} = overlay;
    const x = models[chosen].count ? models[chosen].x(cursor, axis) : 0;
    const levels = models.map((model, i) => {
      const event = i === chosen ? cursor : overlay.eventAt(i, x, axis);
      return event < 0 || model.count === 0 ? 0 : model.live[event];
    });
    this.rows.forEach((row, i) => {
      row.setAttribute('aria-current', i === chosen);
      row.cells[6].textContent = prettyBytes(levels[i]);
      const difference = levels[i] - levels[chosen];
      row.cells[7].textContent = i === chosen ? '' : difference === 0 ? 'equal' : signed(difference);
    });
  }
}
const signed = bytes => (bytes > 0 ? '+' : '') + prettyBytes(bytes);
