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

async function readData() {
  const node = document.getElementById('data');
  let text = node.textContent;
  if (node.dataset.encoding === 'deflate') {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
    text = await new Response(stream).text();
  }
  return JSON.parse(text);
}

function runningSums(deltas, Type) {
  const out = new Type(deltas.length);
  let sum = 0;
  for (let i = 0; i < deltas.length; ++i) out[i] = sum += deltas[i];
  return out;
}

class Model {
  constructor(data) {
    Object.assign(this, data);  // summary, categories, phases, words, ops, storages, book, end
    this.count = data.events.what.length;
    this.times = runningSums(data.events.time, Float64Array);
    this.eventOp = runningSums(data.events.op, Int32Array);  // -1: before any op
    this.peak = data.peak_event;
    this.timed = data.end > 0;
    for (const name of ['name', 'layer', 'work']) this.ops[name] = runningSums(data.ops[name], Int32Array);
    for (const name of ['start', 'end']) this.ops[name] = runningSums(data.ops[name], Float64Array);
    for (const name of ['name', 'layer']) this.storages[name] = runningSums(data.storages[name], Int32Array);
    this.textHead = runningSums(data.texts.head, Int32Array);
    this.textTail = runningSums(data.texts.tail, Int32Array);
    const {count, from, text} = data.holders;
    const first = new Uint32Array(count.length + 1);
    count.forEach((n, id) => { first[id + 1] = first[id] + n; });
    this.holders = {first, from: runningSums(from, Int32Array), text: runningSums(text, Int32Array)};
    const limit = data.summary.limit_bytes;
    this.limit = limit === null ? null : {bytes: limit, name: data.limit_name};
    this.follow(data.events.what);
    this.bySize = Uint32Array.from(data.storages.bytes.keys());
    const bytes = data.storages.bytes;
    this.bySize.sort((a, b) => bytes[b] - bytes[a] || this.birth[a] - this.birth[b]);
  }

  // Levels after each event, and each storage's birth and death.
  follow(what) {
    const kinds = this.categories.length;
    const {bytes, category} = this.storages;
    this.live = new Float64Array(this.count);
    this.alive = new Int32Array(this.count);
    this.byCategory = new Float64Array(this.count * kinds);
    this.eventStorage = new Uint32Array(this.count);
    this.isAlloc = new Uint8Array(this.count);
    this.birth = new Int32Array(bytes.length).fill(this.count);  // never, until it is
    this.death = new Int32Array(bytes.length).fill(this.count);
    const now = new Float64Array(kinds);
    let total = 0, alive = 0;
    for (let i = 0; i < this.count; ++i) {
      const id = Math.abs(what[i]) - 1, born = what[i] > 0, sign = born ? 1 : -1;
      this.eventStorage[i] = id;
      this.isAlloc[i] = born ? 1 : 0;
      if (born) this.birth[id] = i; else this.death[id] = i;
      now[category[id]] += sign * bytes[id];
      this.live[i] = total += sign * bytes[id];
      this.alive[i] = alive += sign;
      this.byCategory.set(now, i * kinds);
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

  // A sentence: "saved for backward of " and what.
  text(i) { return this.words[this.textHead[i]] + this.words[this.textTail[i]]; }
  name(id) { return this.words[this.storages.name[id]]; }
  layer(id) { const layer = this.storages.layer[id]; return layer < 0 ? '' : this.words[layer]; }
  opOfBirth(id) { const op = this.eventOp[this.birth[id]]; return op < 0 ? '' : this.words[this.ops.name[op]]; }
  work(event) { const op = this.eventOp[event]; return op < 0 ? 'at the start' : this.text(this.ops.work[op]); }
  phase(event) { const op = this.eventOp[event]; return op < 0 ? 0 : this.ops.phase[op]; }
  step(event) { const op = this.eventOp[event]; return op < 0 ? 0 : this.ops.step[op]; }

  // Why a storage is alive after an event.
  heldBy(id, event) {
    const {from, text, first} = this.holders;
    let low = first[id], high = first[id + 1] - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (from[middle] <= event) low = middle; else high = middle - 1;
    }
    return this.text(text[low]);
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
