'use strict';
// What the file holds, as arrays that answer: what was alive after each event, and who held it?

const tidemark = {errors: [], ready: false};  // for tests and for the curious
window.tidemark = tidemark;
const failed = what => {
  tidemark.errors.push(String(what));
  document.documentElement.dataset.error = tidemark.errors.join(' | ');
};
window.addEventListener('error', e => failed(e.message));
window.addEventListener('unhandledrejection', e => failed(e.reason && e.reason.stack || e.reason));

// The data element's bytes: base64, deflated.
async function readBytes() {
  const data = await fetch('data:;base64,' + document.getElementById('data').textContent.trim());
  const stream = data.body.pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Parts with their length before each, 4 bytes, the lowest first.
function parts(bytes) {
  const out = [], view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length;) {
    const length = view.getUint32(at, true);
    out.push(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return out;
}

// A run's head, with its columns in place: {ops: {name: [...]}, ...}. Of each value its difference to the one before is
// there, as a LEB128 number, zigzag.
function readRun(head, bytes) {
  const run = JSON.parse(new TextDecoder().decode(head));
  let at = 0;
  for (const [name, count] of run.columns) {
    const out = new Float64Array(count);
    let sum = 0;
    for (let i = 0; i < count; ++i) {
      let value = bytes[at++];
      if (value > 127) {
        value -= 128;
        for (let scale = 128, more = true; more; scale *= 128) {
          const byte = bytes[at++];
          more = byte > 127;
          value += (byte & 127) * scale;
        }
      }
      out[i] = sum += value % 2 ? -(value + 1) / 2 : value / 2;
    }
    const [group, key] = name.split('.');
    (run[group] ??= {})[key] = out;
  }
  return run;
}

class Model {
  constructor(data) {
    // label, measured, summary, categories, phases, holds, stems, words, ops, storages, book, end
    Object.assign(this, data);
    this.count = data.events.what.length;
    this.times = data.events.time;
    this.eventOp = data.events.op;  // -1: before any op
    this.peak = data.peak_event;
    this.timed = data.end > 0;
    const {count} = data.holders;
    this.holders.first = new Uint32Array(count.length + 1);
    count.forEach((n, id) => { this.holders.first[id + 1] = this.holders.first[id] + n; });
    const limit = data.summary.limit_bytes;
    this.limit = limit === null ? null : {bytes: limit, name: data.limit_name};
    this.follow(data.events.what);
    this.bySize = this.sorted(data.storages.bytes);
  }

  // The largest first, then in the order of their births, in which they are numbered. Few sizes are distinct.
  sorted(bytes) {
    const place = new Map(), out = new Uint32Array(bytes.length);
    for (const size of bytes) place.set(size, (place.get(size) ?? 0) + 1);
    let before = 0;
    for (const size of [...place.keys()].sort((a, b) => b - a)) {
      const count = place.get(size);
      place.set(size, before);
      before += count;
    }
    bytes.forEach((size, id) => {
      const at = place.get(size);
      out[at] = id;
      place.set(size, at + 1);
    });
    return out;
  }

  // Levels after each event, and each storage's birth and death. An alloc is of the next storage (0); a free says how
  // many storages ago its own was born.
  follow(what) {
    const kinds = this.categories.length;
    const {bytes, category} = this.storages;
    this.live = new Float64Array(this.count);
    this.alive = new Int32Array(this.count);
    this.byCategory = new Float64Array(this.count * kinds);
    this.eventStorage = new Uint32Array(this.count);
    this.isAlloc = new Uint8Array(this.count);
    this.birth = new Int32Array(bytes.length);
    this.death = new Int32Array(bytes.length).fill(this.count);  // never, until it is
    const now = new Float64Array(kinds);
    let total = 0, alive = 0, born = 0;
    for (let i = 0; i < this.count; ++i) {
      const allocates = what[i] === 0, id = allocates ? born++ : born - what[i], sign = allocates ? 1 : -1;
      this.eventStorage[i] = id;
      this.isAlloc[i] = allocates ? 1 : 0;
      (allocates ? this.birth : this.death)[id] = i;
      now[category[id]] += sign * bytes[id];
      this.live[i] = total += sign * bytes[id];
      this.alive[i] = alive += sign;
      for (let c = 0; c < kinds; ++c) this.byCategory[i * kinds + c] = now[c];
    }
  }

  isAlive(id, event) { return this.birth[id] <= event && event < this.death[id]; }

  // Alive after an event, the largest first; at most `most` of those that pass.
  liveSet(event, most, passes = () => true) {
    const out = [];
    for (const id of this.bySize) {
      if (!this.isAlive(id, event) || !passes(id)) continue;
      out.push(id);
      if (out.length >= most) break;
    }
    return out;
  }

  // A name; "layers.12.mlp" stands there as its stem, "layers." and ".mlp" with U+0000 between them, and 12.
  word(i) {
    if (i < 0) return '';
    const stem = this.stems[this.words.stem[i]], number = this.words.number[i];
    return number < 0 ? stem : stem.replace('\0', number);
  }
  name(id) { return this.word(this.storages.name[id]); }
  layer(id) { return this.word(this.storages.layer[id]); }
  opName(op) { return this.word(this.ops.name[op]); }
  opOfBirth(id) { const op = this.eventOp[this.birth[id]]; return op < 0 ? '' : this.opName(op); }

  // What an op does: "backward of layers.3.mlp.gelu"; "backward of layer 3 (B3)" where its name says less.
  phaseOfWork(op) {
    const phase = this.phases[this.ops.phase[op]], name = this.opName(op), layer = this.word(this.ops.layer[op]);
    if (name.startsWith(phase)) return name;
    return name.startsWith(layer) ? `${phase} of ${name}` : `${phase} of ${layerText(layer)} (${name})`;
  }
  // An op's name, or its layer where that says more; its layer, or the name where there is none.
  workName(op) {
    const name = this.opName(op), layer = this.word(this.ops.layer[op]);
    return name.startsWith(layer) ? name : layerText(layer);
  }
  layerOrOp(op) { return this.ops.layer[op] < 0 ? this.opName(op) : layerText(this.word(this.ops.layer[op])); }
  work(event) { const op = this.eventOp[event]; return op < 0 ? 'at the start' : this.phaseOfWork(op); }
  phase(event) { const op = this.eventOp[event]; return op < 0 ? 0 : this.ops.phase[op]; }
  step(event) { const op = this.eventOp[event]; return op < 0 ? 0 : this.ops.step[op]; }

  // Why a storage is alive after an event.
  heldBy(id, event) {
    const {from, hold, op, first} = this.holders;
    let low = first[id], high = first[id + 1] - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (from[middle] <= event) low = middle; else high = middle - 1;
    }
    const [text, subject] = this.holds[hold[low]];
    if (subject === 0) return text;
    return text + (subject === 1 ? this.workName(op[low]) : subject === 2 ? this.layerOrOp(op[low]) : this.phaseOfWork(op[low]));
  }

  // Where an event stands on an axis, and the last event at or before a place (-1: none).
  x(event, axis) { return axis === 'time' ? this.times[event] : event; }
  eventAt(x, axis) {
    if (axis !== 'time') return Math.min(Math.floor(x), this.count - 1);
    let low = -1, high = this.count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.times[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  }
  extent(axis) { return axis === 'time' ? [0, this.end] : [0, Math.max(this.count, 1)]; }

  // The first event of the highest level among first..last.
  highest(first, last) {
    let best = first;
    for (let i = first + 1; i <= last; ++i) if (this.live[i] > this.live[best]) best = i;
    return best;
  }
}

// For a person: three significant digits, binary units for bytes.
function scaled(value, units, step) {
  let i = 0, size = value;
  while (i + 1 < units.length && Math.abs(size) >= step) { size /= step; ++i; }
  const digits = i === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(size), 1))));
  return size.toFixed(digits) + ' ' + units[i];
}
const prettyBytes = n => (n < 0 ? '-' : '') + scaled(Math.abs(n), ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'], 1024);
const prettyFlops = n => scaled(Number(n), ['FLOP', 'kFLOP', 'MFLOP', 'GFLOP', 'TFLOP', 'PFLOP', 'EFLOP'], 1000);
const prettyTime = n => scaled(n, ['ns', 'us', 'ms', 's'], 1000);
const grouped = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
const percent = x => (100 * x).toFixed(1) + ' %';

// A layer known by its number alone needs the word.
const layerText = layer => /^[0-9]+$/.test(layer) ? 'layer ' + layer : layer;

function make(tag, text = '', className = '') {
  const node = document.createElement(tag);
  if (text !== '') node.textContent = text;
  if (className) node.className = className;
  return node;
}
const swatch = color => { const i = make('i'); i.style.background = color; return i; };
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const categoryColors = {
  parameter: '#4477aa', gradient: '#ee6677', optimizer_state: '#e8a33d', input: '#7fc8d8', activation: '#3f9e6b',
  temporary: '#aa77bb', autograd_detail: '#9c755f', workspace: '#8a94a0',
};
const phaseColors = {
  initial: '#8a94a0', forward: '#4d9de0', loss: '#e0a800', recompute: '#ff8c42', backward: '#b86adf',
  optimizer: '#3bb273', communication: '#e15554', offload: '#7768ae',
};

// A canvas as sharp as the screen, cleared.
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  return context;
}

// Ink that can be read on a colour.
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map(i => parseInt(color.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 145 ? '#10202c' : '#ffffff';
}
