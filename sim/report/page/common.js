'use strict';
// What the pages share: their data, words for figures, drawing, dark and light.

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

// The cursor over a canvas: dashed, from top to bottom.
function cursorLine(context, x, height) {
  context.strokeStyle = css('--ink');
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, height);
  context.stroke();
}

function setTheme(theme) { document.documentElement.dataset.theme = theme; }
const isDark = () => document.documentElement.dataset.theme === 'dark';
setTheme(window.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
