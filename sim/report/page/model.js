// What the file holds, as arrays that answer: what was alive after each event, and who held it?

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
    if (name.startsWith(phase) || phase === 'initial') return name;
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

// A layer known by its number alone needs the word.
const layerText = layer => /^[0-9]+$/.test(layer) ? 'layer ' + layer : layer;
