// Lifetimes: the tide's window across, a bar a tensor, the largest first; of those alive at the cursor, or of all in the
// window.

class Lives {
  constructor(tide) {
    this.tide = tide;
    this.most = 400;
    this.atCursor = true;
    this.rowHeight = 17;
    this.host = document.getElementById('lives');
    this.canvas = this.host.querySelector('canvas');
    this.host.addEventListener('scroll', () => this.draw());
    this.host.addEventListener('click', e => this.pick(e));
    this.host.addEventListener('mousemove', e => {
      const id = this.under(e);
      this.canvas.title = id === undefined ? '' : this.title(id);
    });
    this.canvas.style.position = 'sticky';
    this.canvas.style.top = 0;
    this.spacer = this.host.appendChild(make('div'));
  }

  update() {
    const {tide} = this, {model} = tide, [low, high] = tide.window;
    const first = Math.max(model.eventAt(low, tide.axis), 0), last = Math.max(model.eventAt(high, tide.axis), 0);
    const wanted = this.atCursor ? id => model.isAlive(id, tide.cursor)
                                 : id => model.birth[id] <= last && model.death[id] > first;
    this.ids = [];
    let found = 0;
    for (const id of model.bySize) if (wanted(id) && ++found <= this.most) this.ids.push(id);
    document.getElementById('lives-count').textContent = found > this.ids.length ?
      `the ${grouped(this.ids.length)} largest of ${grouped(found)}` : `${grouped(found)} tensor${found === 1 ? '' : 's'}, the largest first`;
    this.draw();
  }

  draw() {
    const {tide, host, canvas, rowHeight} = this, {model} = tide;
    const width = host.clientWidth;
    const height = Math.min(this.ids.length * rowHeight, 418);
    this.spacer.style.height = Math.max(0, this.ids.length * rowHeight - height) + 'px';
    const context = sharp(canvas, width, height);
    context.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    const top = host.scrollTop, offset = host.getBoundingClientRect().left - tide.host.getBoundingClientRect().left + 1;
    const place = event => tide.graph.toDomXCoord(event >= model.count ? tide.extent()[1] : model.x(event, tide.axis)) - offset;
    const area = tide.graph.getArea(), left = area.x - offset, right = left + area.w;
    for (let row = Math.floor(top / rowHeight); row < this.ids.length && row * rowHeight < top + height; ++row) {
      const id = this.ids[row], y = row * rowHeight - top;
      if (row % 2) { context.fillStyle = css('--row'); context.fillRect(0, y, width, rowHeight); }
      const from = Math.min(Math.max(place(model.birth[id]), left), right), to = Math.min(Math.max(place(model.death[id]), left), right);
      context.fillStyle = categoryColors[model.categories[model.storages.category[id]]];
      context.globalAlpha = model.isAlive(id, tide.cursor) ? 1 : 0.6;
      context.fillRect(from, y + 3, Math.max(to - from, 2), rowHeight - 6);
      context.globalAlpha = 1;
      context.fillStyle = css('--quiet');
      context.textAlign = 'right';
      context.fillText(prettyBytes(model.storages.bytes[id]), left - 6, y + rowHeight / 2);
      context.fillStyle = css('--ink');
      const text = model.name(id), space = context.measureText(text).width + 8;
      const after = to + space < right;
      context.textAlign = after || from - left < space ? 'left' : 'right';
      if (!after && from - left < space) context.fillStyle = inkOn(categoryColors[model.categories[model.storages.category[id]]]);
      context.fillText(text, after ? to + 5 : from - left < space ? from + 5 : from - 5, y + rowHeight / 2);
    }
    const x = tide.mark(tide.cursor) - offset;
    if (model.count === 0 || x < left || x > right) return;
    cursorLine(context, x, height);
  }

  under(e) {
    return this.ids[Math.floor((e.clientY - this.host.getBoundingClientRect().top - 1 + this.host.scrollTop) / this.rowHeight)];
  }
  pick(e) {
    const id = this.under(e);
    if (id === undefined) return;
    this.tide.setCursor(this.tide.model.birth[id]);
    this.tide.reveal();
  }
  title(id) {
    const {model} = this.tide;
    return `${model.name(id)}\n${prettyBytes(model.storages.bytes[id])} ${model.categories[model.storages.category[id]]}` +
      `\n${model.layer(id)}\nclick: to its birth`;
  }
}
