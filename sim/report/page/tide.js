// The tide: a stacked area with a level-of-detail envelope, phases behind it, limits, the peak and the cursor over it.

class Tide {
  constructor(overlay, onCursor, onWindow) {
    this.overlay = overlay;
    this.onCursor = onCursor;
    this.onWindow = onWindow;
    this.axis = 'events';
    this.timed = overlay.models.every(model => model.timed);
    this.held = false;
    this.host = document.getElementById('tide');
    this.over = document.getElementById('over');
    this.take(overlay.models[0], overlay.models[0].peak);
    this.listen();
  }

  // Shows a run, with the cursor at one of its events.
  take(model, cursor) {
    this.model = model;
    this.cursor = cursor;
    // The first series of a stack is on top.
    const order = ['temporary', 'autograd_detail', 'activation', 'input', 'workspace', 'gradient', 'optimizer_state', 'parameter'];
    const {category, bytes} = model.storages, seen = model.categories.map(() => false);
    category.forEach((c, id) => { seen[c] = seen[c] || bytes[id] > 0; });
    this.series = order.map(name => model.categories.indexOf(name)).filter(c => c >= 0 && seen[c]);
    if (this.series.length === 0) this.series = [0];
    this.runs = {};
    this.window = this.extent();
    if (this.graph) this.graph.destroy();
    this.makeGraph();
  }
  extent() { return this.overlay.extent(this.axis); }

  // The chart's top: the peak, and a limit that is near enough to be seen with it.
  top() {
    const peak = this.overlay.highest() || 1;
    const lines = this.lines().map(line => line.bytes).filter(bytes => bytes <= 2 * peak);
    return Math.max(peak, ...lines) * 1.12;
  }
  lines() {
    const out = [];
    if (this.model.limit) out.push({...this.model.limit, color: '--bad'});
    if (this.model.book) out.push({name: 'textbook formula', bytes: this.model.book.formula, color: '--accent'});
    return out;
  }

  makeGraph() {
    const {categories} = this.model;
    this.graph = new Dygraph(document.getElementById('chart'), this.rows(), {
      labels: ['x', ...this.series.map(c => categories[c])],
      colors: this.series.map(c => categoryColors[categories[c]]),
      stackedGraph: true, stepPlot: true, fillAlpha: 0.92, strokeWidth: 0, drawPoints: false, highlightCircleSize: 0,
      showLabelsOnHighlight: false, legend: 'never', drawGrid: true, gridLineWidth: 0.5, animatedZooms: false,
      valueRange: [0, this.top()], dateWindow: this.window, xRangePad: 0,
      axes: {
        x: {axisLabelFormatter: x => this.axis === 'time' ? (x === 0 ? '0' : prettyTime(x)) : Number.isInteger(x) ? grouped(x) : '',
            drawGrid: false, pixelsPerLabel: 90},
        y: {ticker: (low, high) => byteTicks(high), axisLabelWidth: 62},
      },
      gridLineColor: css('--line'), axisLineColor: css('--line'),
      underlayCallback: (context, area) => this.shadePhases(context, area),
      drawCallback: graph => this.drawn(graph),
      clickCallback: () => { this.held = !this.held; this.drawOver(); },
    });
  }

  // Rows for the chart. Where a pixel's column holds more than one event it shows the highest of them across its whole
  // width, with that event's own composition: no peak is ever averaged away or too thin to see.
  rows() {
    const [low, high] = this.window;
    const [start, end] = this.extent();
    const width = Math.max(this.host.clientWidth - 70, 200);
    const rows = [];
    this.envelope(rows, start, Math.min(low, end), 150);
    this.envelope(rows, Math.max(low, start), Math.min(high, end), width);
    this.envelope(rows, Math.max(high, start), end, 150);
    if (rows.length === 0) rows.push([start, ...this.series.map(() => 0)]);
    if (rows[rows.length - 1][0] < end) rows.push([end, ...rows[rows.length - 1].slice(1)]);
    return rows;
  }
  envelope(rows, from, to, columns) {
    if (!(to > from)) return;
    const {model, axis} = this, width = (to - from) / columns;
    let next = this.firstFrom(from);
    for (let column = 0; column < columns && next < model.count; ++column) {
      const left = from + column * width, end = column + 1 === columns, right = end ? to : from + (column + 1) * width;
      const first = next;
      next = end ? Math.max(first, model.eventAt(to, axis) + 1) : Math.max(first, this.firstFrom(right));
      if (next === first) continue;
      const last = next - 1;
      if (first === last) {
        this.push(rows, model.x(first, axis), first);
      } else {
        this.push(rows, left, model.highest(first, last));
        this.push(rows, right, last);
      }
    }
  }
  // The first event at or after a place.
  firstFrom(x) {
    const {model, axis} = this;
    if (axis !== 'time') return Math.max(0, Math.ceil(x));
    let low = 0, high = model.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (model.times[middle] < x) low = middle + 1; else high = middle;
    }
    return low;
  }
  // The chart skips a second row at one place, so the later takes the earlier's.
  push(rows, x, event) {
    if (rows.length > 0 && rows[rows.length - 1][0] >= x) rows.pop();
    rows.push(this.row(x, event));
  }
  row(x, event) {
    const base = event * this.model.categories.length;
    return [x, ...this.series.map(c => this.model.byCategory[base + c])];
  }

  // Stretches of one phase: [from, to, phase].
  phaseRuns(axis) {
    const {model} = this;
    const runs = [];
    const add = (from, to, phase) => {
      const last = runs[runs.length - 1];
      if (last && last[2] === phase && last[1] >= from) last[1] = Math.max(last[1], to);
      else if (to > from) runs.push([from, to, phase]);
    };
    if (axis === 'events') {
      for (let i = 0; i < model.count; ++i) add(i, i + 1, model.phase(i));
    } else {
      const {start, end, phase, stream} = model.ops;
      for (let i = 0; i < start.length; ++i) if (stream[i] === 0 && start[i] >= 0) add(start[i], end[i], phase[i]);
    }
    return runs;
  }

  shadePhases(context, area) {
    const [low, high] = this.window, scale = area.w / (high - low);
    let shaded = area.x;  // up to this pixel: what is thinner than one is drawn once
    context.globalAlpha = 0.13;
    for (const [from, to, phase] of this.runs[this.axis] ??= this.phaseRuns(this.axis)) {
      if (to < low || from > high) continue;
      const left = Math.max(area.x + (from - low) * scale, shaded), right = Math.min(area.x + (to - low) * scale, area.x + area.w);
      if (right <= shaded) continue;
      shaded = Math.min(Math.max(right, left + 1), area.x + area.w);
      context.fillStyle = phaseColors[this.model.phases[phase]];
      context.fillRect(left, area.y, shaded - left, area.h);
    }
    context.globalAlpha = 1;
  }

  drawn(graph) {
    const range = graph.xAxisRange();
    const moved = Math.abs(range[0] - this.window[0]) + Math.abs(range[1] - this.window[1]) > 1e-9 * (range[1] - range[0]);
    this.graph = graph;
    if (moved) {
      this.window = range;
      setTimeout(() => this.refresh(), 0);
    }
    this.drawOver();
  }
  refresh() {
    this.graph.updateOptions({file: this.rows(), dateWindow: this.window, valueRange: [0, this.top()]});
    this.onWindow();
  }

  setWindow(low, high) {
    const [start, end] = this.extent();
    const least = this.axis === 'time' ? 1 : 4;
    const length = Math.min(Math.max(high - low, least), end - start);
    const from = Math.min(Math.max(low, start), end - length);
    this.window = [from, from + length];
    this.refresh();
  }
  zoom(factor, about = this.model.x(this.cursor, this.axis)) {
    const [low, high] = this.window;
    const at = about < low || about > high ? (low + high) / 2 : about;
    this.setWindow(at - (at - low) * factor, at + (high - at) * factor);
  }
  all() { this.setWindow(...this.extent()); }
  setAxis(axis) {
    if (axis === this.axis || (axis === 'time' && !this.timed)) return;
    const events = this.window.map(x => Math.max(this.model.eventAt(x, this.axis), 0));
    this.axis = axis;
    const whole = events[0] === 0 && events[1] >= this.model.count - 1;
    const [start, end] = this.extent();
    this.window = whole ? [start, end] : [this.model.x(events[0], axis), this.model.x(events[1], axis)];
    this.setWindow(...this.window);
  }

  setCursor(event) {
    if (this.model.count === 0) return;
    this.cursor = Math.min(Math.max(event, 0), this.model.count - 1);
    this.drawOver();
    this.onCursor(this.cursor);
  }
  // The cursor must be in sight when the keyboard moves it.
  reveal() {
    const x = this.model.x(this.cursor, this.axis), [low, high] = this.window;
    if (x < low || x > high) this.setWindow(x - (high - low) / 2, x + (high - low) / 2);
  }
  // What a pixel's column shows is what the cursor picks there.
  eventUnder(pixel) {
    const x = this.graph.toDataXCoord(pixel), half = (this.window[1] - this.window[0]) / (2 * this.graph.getArea().w);
    const last = Math.max(this.model.eventAt(x + half, this.axis), 0);
    const before = this.model.eventAt(x - half, this.axis);
    return before >= last ? last : this.model.highest(Math.max(before + 1, 0), last);
  }

  listen() {
    let pending = null;
    this.host.addEventListener('mousemove', e => {
      if (this.held || e.buttons) return;
      const pixel = e.clientX - this.host.getBoundingClientRect().left;
      if (pending === null) setTimeout(() => { this.setCursor(this.eventUnder(pending)); pending = null; }, 10);
      pending = pixel;
    });
    this.host.addEventListener('wheel', e => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      this.zoom(e.deltaY > 0 ? 1.25 : 0.8, this.graph.toDataXCoord(e.clientX - this.host.getBoundingClientRect().left));
    }, {passive: false});
    let width = this.host.clientWidth;
    new ResizeObserver(() => {
      if (this.host.clientWidth === width) return;
      width = this.host.clientWidth;
      this.graph.resize();
      this.refresh();
    }).observe(this.host);
  }

  // Where an event is marked. Along events it is as wide as its step in the stairs: the mark is in their middle.
  mark(event, run = this.overlay.chosen) {
    const x = event => this.overlay.x(run, event, this.axis);
    return this.graph.toDomXCoord(this.axis === 'time' ? x(event) : (x(event) + x(event + 1)) / 2);
  }

  // Limits, the peak's mark and the cursor, on their own canvas.
  drawOver() {
    if (!this.graph) return;
    const context = sharp(this.over, this.host.clientWidth, this.host.clientHeight), area = this.graph.getArea();
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    context.lineWidth = 1.5;
    this.overlay.draw(context, area, this);
    this.overlay.drawStrip(this);
    for (const line of this.lines()) this.drawLine(context, area, line);
    if (this.model.count === 0) return;
    this.drawPeak(context, area);
    const x = this.mark(this.cursor);
    if (x < area.x - 1 || x > area.x + area.w + 1) return;
    const y = this.graph.toDomYCoord(this.model.live[this.cursor]);
    context.strokeStyle = context.fillStyle = css('--ink');
    context.setLineDash(this.held ? [] : [3, 3]);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, area.y);
    context.lineTo(x, area.y + area.h);
    context.stroke();
    context.beginPath();
    context.arc(x, y, 4, 0, 2 * Math.PI);
    context.fill();
  }
  drawLine(context, area, line) {
    const seen = line.bytes <= this.top();
    const y = seen ? this.graph.toDomYCoord(line.bytes) : area.y + 8;
    context.strokeStyle = context.fillStyle = css(line.color);
    if (seen) {
      context.setLineDash([7, 4]);
      context.beginPath();
      context.moveTo(area.x, y);
      context.lineTo(area.x + area.w, y);
      context.stroke();
    }
    context.setLineDash([]);
    label(context, `${seen ? '' : '↑ '}${line.name}: ${prettyBytes(line.bytes)}`, area.x + 8, seen ? y - 9 : y, 'left');
  }
  drawPeak(context, area) {
    const {model} = this, x = this.mark(model.peak);
    if (x < area.x || x > area.x + area.w) return;
    const y = this.graph.toDomYCoord(model.live[model.peak]);
    context.fillStyle = css('--ink');
    context.beginPath();
    context.moveTo(x, y - 2);
    context.lineTo(x - 5, y - 10);
    context.lineTo(x + 5, y - 10);
    context.fill();
    const right = x > area.x + area.w / 2;
    label(context, `peak ${prettyBytes(model.live[model.peak])}, ${model.work(model.peak)}`, x + (right ? -10 : 10), y - 10,
          right ? 'right' : 'left');
  }
}

// Text on a ground of its own, readable over anything.
function label(context, text, x, y, align) {
  context.textAlign = align;
  context.textBaseline = 'middle';
  const width = context.measureText(text).width, ink = context.fillStyle;
  context.globalAlpha = 0.8;
  context.fillStyle = css('--paper');
  context.fillRect(align === 'right' ? x - width - 4 : x - 4, y - 9, width + 8, 18);
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.fillText(text, x, y);
}

// Ticks at powers of two and their multiples, so that labels are round in binary units.
function byteTicks(high) {
  let step = Math.pow(2, Math.floor(Math.log2(Math.max(high, 1) / 4)));
  if (high / step > 7) step *= 2;
  const ticks = [];
  for (let v = 0; v <= high; v += step) ticks.push({v, label: v === 0 ? '0' : trimmed(v)});
  return ticks;
}
const trimmed = bytes => prettyBytes(bytes).replace(/\.0+ /, ' ').replace(/(\.\d*?)0+ /, '$1 ');
