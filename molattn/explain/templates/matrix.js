// Attention of all pairs of atoms on a canvas: rows attend to columns.
const LETTER = 11;
const [WIDEST, LARGEST] = [480, 44]; // pixels, of the matrix and of a cell
const PADDING = 34; // of the figure around it
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

class Matrix {
  constructor(canvas, choose) {
    Object.assign(this, { canvas, choose, cell: [0, 0], names: [] });
    for (const event of ["pointermove", "pointerdown"]) canvas.addEventListener(event, (at) => this.point(at));
    canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Outline a cell, and the row or the column of the chosen atom.
  show(names, weights, limit, atom, towards, cell) {
    Object.assign(this, { names, weights, limit, atom, towards, cell });
    this.draw();
  }

  point({ offsetX, offsetY }) {
    const [column, row] = [offsetX, offsetY].map((at) => Math.floor((at - this.margin) / this.size));
    const n = this.names.length;
    if (row >= 0 && column >= 0 && row < n && column < n) this.choose(row, column);
  }

  step(event) {
    if (!STEPS[event.key]) return;
    event.preventDefault();
    const last = this.names.length - 1;
    this.choose(...STEPS[event.key].map((by, axis) => Math.max(0, Math.min(last, this.cell[axis] + by))));
  }

  draw() {
    const { canvas, names, weights, limit } = this;
    const room = Math.min(WIDEST, canvas.parentElement.clientWidth - PADDING);
    if (!names.length || room <= 0) return;
    const n = names.length;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = canvas.getContext("2d");
    const font = pen.font = `${LETTER}px system-ui, sans-serif`;
    this.margin = Math.ceil(Math.max(...names.map((name) => pen.measureText(name).width))) + 8;
    this.size = Math.min((room - this.margin - 2) / n, LARGEST);
    const extent = Math.ceil(this.margin + this.size * n + 2);
    const ratio = window.devicePixelRatio;
    canvas.width = canvas.height = extent * ratio;
    canvas.style.width = canvas.style.height = `${extent}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = font;
    const at = (place) => this.margin + place * this.size;
    pen.fillStyle = color("share");
    weights.forEach((weight, pair) => {
      pen.globalAlpha = limit > 0 ? weight / limit : 0;
      pen.fillRect(at(pair % n), at(Math.floor(pair / n)), this.size + 0.3, this.size + 0.3);
    });
    pen.globalAlpha = 1;
    this.label(pen, at, color);
    const outline = (name, width, row, column, rows = 1, columns = 1) => {
      [pen.strokeStyle, pen.lineWidth] = [color(name), width];
      pen.strokeRect(at(column), at(row), columns * this.size, rows * this.size);
    };
    outline("line", 1, 0, 0, n, n);
    if (this.towards) outline("ink", 1.5, this.atom, 0, 1, n);
    else outline("ink", 1.5, 0, this.atom, n, 1);
    outline("link", 2.5, ...this.cell);
  }

  // Label as many atoms as fit, and always the chosen one.
  label(pen, at, color) {
    const every = Math.max(1, Math.ceil((LETTER + 2) / this.size));
    pen.textBaseline = "middle";
    this.names.forEach((name, place) => {
      const isChosen = place === this.atom;
      if (!isChosen && (place % every || Math.abs(place - this.atom) < every)) return;
      const center = at(place) + this.size / 2;
      pen.fillStyle = color(isChosen ? "ink" : "soft");
      pen.textAlign = "right";
      pen.fillText(name, this.margin - 5, center);
      pen.save();
      pen.translate(center, this.margin - 5);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(name, 0, 0);
      pen.restore();
    });
  }
}
