// The rows of a sweep as columns: texts, numbers where all are, and how a person reads them.

// RFC 4180: quoted fields may hold commas, quotes and line breaks.
function readCsv(text) {
  const rows = [];
  let row = [], field = '', quoted = false;
  for (let i = 0; i < text.length; ++i) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') { field += c; ++i; } else quoted = false;
    } else if (c === '"') {
      quoted = true;
    } else if (c === ',') {
      row.push(field);
      field = '';
    } else if (c === '\n') {
      row.push(field);
      rows.push(row);
      row = [];
      field = '';
    } else {
      field += c;
    }
  }
  return rows;
}

class Points {
  constructor(head, csv) {
    Object.assign(this, head);  // study, axes
    const [names, ...rows] = readCsv(csv);
    this.names = names;
    this.rows = rows;
    this.count = rows.length;
    this.at = new Map(names.map((name, i) => [name, i]));
    this.cache = new Map();
    const failed = this.at.get('error');
    this.good = rows.map((_, i) => i).filter(i => rows[i][failed] === '');
    this.front = this.good.filter(i => this.text('pareto', i) === '1')
      .sort((a, b) => this.number('peak_bytes', a) - this.number('peak_bytes', b));
    this.onFront = new Set(this.front);
    // Figures: columns that are numbers wherever they are given, and differ somewhere.
    this.figures = names.filter(name => !['index', 'pareto', 'error'].includes(name) && !this.axes.includes(name) &&
      this.good.some(i => this.text(name, i) !== '') && this.good.every(i => !Number.isNaN(Number(this.text(name, i)))));
    this.values = new Map(this.axes.map(axis => [axis, this.inOrder(axis)]));
  }
  text(name, i) { return this.rows[i][this.at.get(name)]; }
  number(name, i) {
    if (!this.cache.has(name)) {
      const at = this.at.get(name);
      this.cache.set(name, Float64Array.from(this.rows, row => row[at] === '' ? NaN : Number(row[at])));
    }
    return this.cache.get(name)[i];
  }
  // An axis's values, ascending where they are numbers, else as the study names them.
  inOrder(axis) {
    const all = [...new Set(this.rows.map((_, i) => this.text(axis, i)))];
    return all.every(value => value !== '' && !Number.isNaN(Number(value))) ? all.sort((a, b) => a - b) : all;
  }
  fits(i) { return this.text('fits', i) !== 'false'; }
  pretty(name, value) {
    if (Number.isNaN(value) || value === undefined) return '';
    if (name.endsWith('_bytes')) return prettyBytes(value);
    if (name.endsWith('_ns')) return prettyTime(value);
    if (name.startsWith('flops_')) return prettyFlops(value);
    if (['recompute_overhead', 'mfu', 'hfu'].includes(name)) return percent(value);
    return Number.isInteger(value) ? grouped(value) : String(value);
  }
}

// Violet to yellow: viridis at seven stops, its dark end lighter so that it is seen on a dark ground.
function scaleColor(share) {
  const stops = [[99, 46, 130], [72, 66, 140], [49, 104, 142], [33, 145, 140], [53, 183, 121], [144, 215, 67], [253, 231, 37]];
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
  const mix = stops[low].map((c, i) => Math.round(c + (place - low) * (stops[low + 1][i] - c)));
  return '#' + mix.map(c => c.toString(16).padStart(2, '0')).join('');
}

// Round ticks: of bytes in binary units, else 1, 2 or 5 times a power of ten.
function ticks(name, low, high, wanted) {
  const rough = (high - low || Math.abs(high) || 1) / wanted;
  let step = name.endsWith('_bytes') ? Math.pow(2, Math.ceil(Math.log2(rough))) : Math.pow(10, Math.floor(Math.log10(rough)));
  if (!name.endsWith('_bytes')) step *= [1, 2, 5, 10].find(times => step * times >= rough);
  const out = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) out.push(value);
  return out;
}
