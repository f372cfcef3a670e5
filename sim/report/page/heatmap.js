// A figure over two axes; of the points that share a cell the least, since the other axes are there to be chosen.

class HeatMap {
  constructor(points, onPick) {
    this.points = points;
    this.onPick = onPick;
    this.host = document.getElementById('heat');
    this.canvas = this.host.querySelector('canvas');
    const lengths = points.axes.map(axis => [axis, points.values.get(axis).length]).sort((a, b) => b[1] - a[1]);
    this.across = lengths[0][0];
    this.down = lengths.length > 1 ? lengths[1][0] : '';
    this.value = points.figures.includes('peak_bytes') ? 'peak_bytes' : points.figures[0];
    this.host.addEventListener('mousemove', e => {
      const box = this.host.getBoundingClientRect(), cell = this.under(e.clientX - box.left, e.clientY - box.top);
      if (cell) this.onPick(cell.point);
    });
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  cells() {
    const {points} = this, out = new Map();
    const columns = points.values.get(this.across), rows = this.down ? points.values.get(this.down) : [''];
    const column = new Map(columns.map((value, i) => [value, i])), row = new Map(rows.map((value, i) => [value, i]));
    for (const i of points.good) {
      const value = points.number(this.value, i);
      if (Number.isNaN(value)) continue;
      const key = row.get(this.down ? points.text(this.down, i) : '') * columns.length + column.get(points.text(this.across, i));
      const before = out.get(key);
      if (!before || value < before.value) out.set(key, {value, point: i});
    }
    return {columns, rows, out};
  }

  draw() {
    const {points, host} = this, width = host.clientWidth;
    const {columns, rows, out} = this.cells();
    const high = Math.min(Math.max(24, Math.floor(420 / rows.length)), 44), height = rows.length * high + 62;
    host.style.height = height + 'px';
    const context = sharp(this.canvas, width, height);
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    const name = Math.min(Math.max(...rows.map(text => context.measureText(text).width), 0) + 24, 260);
    const wide = (width - name - 8) / columns.length;
    this.grid = {name, wide, high, columns, rows, out};
    const values = [...out.values()].map(cell => cell.value);
    let least = Infinity, most = -Infinity;
    for (const value of values) { least = Math.min(least, value); most = Math.max(most, value); }
    context.textBaseline = 'middle';
    for (const [key, cell] of out) {
      const x = name + (key % columns.length) * wide, y = Math.floor(key / columns.length) * high;
      const color = scaleColor(1 - (cell.value - least) / (most - least || 1)), text = points.pretty(this.value, cell.value);
      context.fillStyle = color;
      context.fillRect(x, y, Math.max(wide - 1, 1), high - 1);
      context.fillStyle = inkOn(color);
      context.textAlign = 'center';
      const fits = points.fits(cell.point);
      if (context.measureText(text).width + 8 < wide) context.fillText((fits ? '' : '✕ ') + text, x + wide / 2, y + high / 2);
      else if (!fits && wide > 12) context.fillText('✕', x + wide / 2, y + high / 2);
    }
    context.fillStyle = css('--quiet');
    context.textAlign = 'right';
    rows.forEach((text, i) => context.fillText(text, name - 8, i * high + high / 2, name - 12));
    context.textAlign = 'center';
    let free = -Infinity;
    columns.forEach((text, i) => {
      const x = name + i * wide + wide / 2, half = context.measureText(text).width / 2;
      if (x - half < free) return;
      context.fillText(text, x, rows.length * high + 12);
      free = x + half + 8;
    });
    context.fillStyle = css('--ink');
    context.fillText(this.across + ' →', name + (width - name) / 2, rows.length * high + 32);
    context.textAlign = 'left';
    if (this.down) context.fillText('↓ ' + this.down, 4, rows.length * high + 32);
    this.note(least, most, values.length);
  }
  note(least, most, cells) {
    const {points} = this;
    const others = points.axes.filter(axis => axis !== this.across && axis !== this.down);
    document.getElementById('heat-note').textContent = cells === 0 ? 'no value' :
      `light ${points.pretty(this.value, least)} to dark ${points.pretty(this.value, most)}; ✕ does not fit` +
      (others.length ? `; each cell is the least over ${others.join(', ')}` : '');
  }

  under(x, y) {
    const {name, wide, high, columns, rows, out} = this.grid;
    const column = Math.floor((x - name) / wide), row = Math.floor(y / high);
    return column < 0 || column >= columns.length || row < 0 || row >= rows.length ? undefined : out.get(row * columns.length + column);
  }
}
