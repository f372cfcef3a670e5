// Points over two columns. The front is a line; what does not fit is hollow. The pointer, or the arrow keys along the
// front, pick the point that the box describes.

class Scatter {
  constructor(points, onPick) {
    this.points = points;
    this.onPick = onPick;
    this.host = document.getElementById('scatter');
    this.canvas = this.host.querySelector('canvas');
    this.box = document.getElementById('point');
    this.picked = points.front[0] ?? points.good[0];
    const {figures, axes} = points;
    this.x = figures.includes('peak_bytes') ? 'peak_bytes' : figures[0];
    this.y = figures.includes('time_step_ns') && points.good.some(i => points.number('time_step_ns', i) > 0) ? 'time_step_ns' : 'flops_total';
    this.color = axes[0];
    this.host.addEventListener('mousemove', e => {
      const box = this.host.getBoundingClientRect(), found = this.nearest(e.clientX - box.left, e.clientY - box.top);
      if (found !== undefined) this.pick(found);
    });
    this.host.addEventListener('keydown', e => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[e.key];
      if (!step || points.front.length === 0) return;
      e.preventDefault();
      const now = points.front.indexOf(this.picked);
      this.pick(points.front[Math.min(Math.max(now < 0 ? 0 : now + step, 0), points.front.length - 1)]);
    });
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  place(name, i) {
    const {points} = this;
    return points.axes.includes(name) ? points.values.get(name).indexOf(points.text(name, i)) : points.number(name, i);
  }
  share(name, i) { return this.place(name, i) / Math.max(this.points.values.get(name).length - 1, 1); }

  draw() {
    const {points, host} = this, width = host.clientWidth, height = host.clientHeight;
    const context = sharp(this.canvas, width, height);
    const area = {left: 86, top: 24, right: width - 16, bottom: height - 42};
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    this.spots = [];
    const shown = points.good.filter(i => !Number.isNaN(this.place(this.x, i)) && !Number.isNaN(this.place(this.y, i)));
    if (shown.length === 0) return;
    const range = name => {
      let low = Infinity, high = -Infinity;
      for (const i of shown) { const v = this.place(name, i); low = Math.min(low, v); high = Math.max(high, v); }
      const pad = (high - low || Math.abs(high) || 1) * 0.05;
      return [low - pad, high + pad];
    };
    const [left, right] = range(this.x), [bottom, top] = range(this.y);
    const toX = v => area.left + (v - left) / (right - left) * (area.right - area.left);
    const toY = v => area.bottom - (v - bottom) / (top - bottom) * (area.bottom - area.top);
    this.drawAxes(context, area, [left, right], [bottom, top], toX, toY);
    const size = shown.length > 5000 ? 2 : shown.length > 500 ? 3 : 4.5;
    const spot = i => [toX(this.place(this.x, i)), toY(this.place(this.y, i)), i];
    this.spots = shown.map(spot);
    for (const [x, y, i] of this.spots) {
      context.beginPath();
      context.arc(x, y, size, 0, 2 * Math.PI);
      context.fillStyle = context.strokeStyle = scaleColor(this.share(this.color, i));
      context.globalAlpha = points.onFront.has(i) ? 1 : 0.75;
      context.lineWidth = 1.5;
      if (points.fits(i)) context.fill(); else context.stroke();
    }
    context.globalAlpha = 1;
    this.drawFront(context, spot, size);
    this.drawKey(context, area);
    if (this.picked !== undefined) this.mark(context, spot(this.picked), size);
  }

  drawAxes(context, area, xs, ys, toX, toY) {
    const {points} = this;
    const label = (name, value) => points.axes.includes(name) ? points.values.get(name)[value] ?? '' : tidy(points.pretty(name, value));
    const marks = (name, range, wanted) => (points.axes.includes(name) ? points.values.get(name).map((_, k) => k) : ticks(name, ...range, wanted))
      .filter(value => value >= range[0] && value <= range[1]);
    context.strokeStyle = css('--line');
    context.fillStyle = css('--quiet');
    context.lineWidth = 1;
    context.textAlign = 'center';
    context.textBaseline = 'top';
    let free = -Infinity;
    for (const value of marks(this.x, xs, 8)) {
      const x = toX(value), text = label(this.x, value), half = context.measureText(text).width / 2;
      context.beginPath();
      context.moveTo(x, area.top);
      context.lineTo(x, area.bottom);
      context.stroke();
      if (x - half < free) continue;
      context.fillText(text, x, area.bottom + 6);
      free = x + half + 8;
    }
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const value of marks(this.y, ys, 7)) {
      const y = toY(value);
      context.beginPath();
      context.moveTo(area.left, y);
      context.lineTo(area.right, y);
      context.stroke();
      context.fillText(label(this.y, value), area.left - 8, y);
    }
    context.fillStyle = css('--ink');
    context.textBaseline = 'bottom';
    context.fillText(this.x + ' →', area.right, area.bottom + 36);
    context.textAlign = 'left';
    context.fillText('↑ ' + this.y, area.left + 4, area.top + 16);
  }

  // What the colours mean: each value, or the ends of many.
  drawKey(context, area) {
    const values = this.points.values.get(this.color), some = values.length <= 12;
    const shown = some ? values.map((_, i) => i) : [0, values.length >> 1, values.length - 1];
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    let x = area.right;
    for (const i of shown.reverse()) {
      const text = values[i].length > 24 ? values[i].slice(0, 23) + '…' : values[i];
      context.fillStyle = css('--ink');
      context.fillText(text, x, 9);
      x -= context.measureText(text).width + 6;
      context.fillStyle = scaleColor(i / Math.max(values.length - 1, 1));
      context.fillRect(x - 10, 4, 10, 10);
      x -= 24;
    }
    context.fillStyle = css('--quiet');
    context.fillText(this.color, x, 9);
  }

  // Between two points of the front nothing is better than both: stairs.
  drawFront(context, spot, size) {
    const {points} = this;
    context.strokeStyle = css('--ink');
    context.lineWidth = 1.4;
    context.setLineDash([5, 3]);
    context.beginPath();
    let before = null;
    for (const i of points.front) {
      const [x, y] = spot(i);
      if (before === null) context.moveTo(x, y);
      else { context.lineTo(x, before); context.lineTo(x, y); }
      before = y;
    }
    context.stroke();
    context.setLineDash([]);
    for (const i of points.front) {
      const [x, y] = spot(i);
      context.beginPath();
      context.arc(x, y, size + 2, 0, 2 * Math.PI);
      context.stroke();
    }
  }
  mark(context, [x, y], size) {
    context.strokeStyle = css('--accent');
    context.lineWidth = 3;
    context.beginPath();
    context.arc(x, y, size + 4, 0, 2 * Math.PI);
    context.stroke();
  }

  nearest(x, y) {
    let best, least = 40 * 40;
    for (const [px, py, i] of this.spots) {
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }
  pick(i) {
    if (i === this.picked) return;
    this.picked = i;
    this.draw();
    this.onPick(i);
  }
}
const tidy = text => text.replace(/\.0+ /, ' ').replace(/(\.\d*?)0+ /, '$1 ');
