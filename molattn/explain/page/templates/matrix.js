// Attention of all pairs of atoms on a canvas: rows attend to columns.
const LETTER = 11;
const WIDEST = 480; // pixels
const LARGEST = 44; // side of a cell
const PADDING = 34; // of the figure around it

class Matrix {
  constructor(canvas, choose) {
    this.canvas = canvas;
    this.choose = choose;
    this.cell = [0, 0];
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerdown", (event) => this.point(event));
    canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(names, weights, limit) {
    Object.assign(this, { names, weights, limit });
    this.draw();
  }

  // Outline the row or the column of the chosen atom.
  mark(atom, towards, cell) {
    this.atom = atom;
    this.towards = towards;
    if (cell) this.cell = cell;
    else this.cell = towards ? [atom, this.cell[1]] : [this.cell[0], atom];
    this.draw();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [column, row] = [event.clientX - box.left, event.clientY - box.top].map((place) =>
      Math.floor((place - this.margin) / this.size));
    const n = this.names.length;
    if (row >= 0 && column >= 0 && row < n && column < n) this.choose(row, column);
  }

  step(event) {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
      ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    const n = this.names.length;
    const within = (place) => Math.max(0, Math.min(n - 1, place));
    this.choose(within(this.cell[0] + down), within(this.cell[1] + right));
  }

  draw() {
    const { canvas, names, weights, limit } = this;
    const room = Math.min(WIDEST, canvas.parentElement.clientWidth - PADDING);
    if (!names || room <= 0) return;
    const n = names.length;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = canvas.getContext("2d");
    pen.font = `${LETTER}px system-ui, sans-serif`;
    this.margin = Math.ceil(Math.max(...names.map((name) => pen.measureText(name).width))) + 8;
    this.size = Math.min((room - this.margin - 2) / n, LARGEST);
    const extent = Math.ceil(this.margin + this.size * n + 2);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.height = extent * ratio;
    canvas.style.width = canvas.style.height = `${extent}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `${LETTER}px system-ui, sans-serif`;
    const at = (place) => this.margin + place * this.size;
    pen.fillStyle = color("share");
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        pen.globalAlpha = limit > 0 ? Math.min(1, weights[row * n + column] / limit) : 0;
        pen.fillRect(at(column), at(row), this.size + 0.3, this.size + 0.3);
      }
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = color("line");
    pen.strokeRect(this.margin, this.margin, this.size * n, this.size * n);
    this.label(pen, at, color);
    pen.strokeStyle = color("ink");
    pen.lineWidth = 1.5;
    const line = [this.margin, at(this.atom), this.size * n, this.size];
    if (this.towards) pen.strokeRect(...line);
    else pen.strokeRect(line[1], line[0], line[3], line[2]);
    pen.lineWidth = 2.5;
    pen.strokeStyle = color("link");
    pen.strokeRect(at(this.cell[1]), at(this.cell[0]), this.size, this.size);
  }

  // Label as many atoms as fit, and always the chosen one.
  label(pen, at, color) {
    const n = this.names.length;
    const every = Math.max(1, Math.ceil((LETTER + 2) / this.size));
    const center = (place) => at(place) + this.size / 2;
    pen.textBaseline = "middle";
    for (let place = 0; place < n; place++) {
      const near = Math.abs(place - this.atom) < every;
      if (place !== this.atom && (place % every || near)) continue;
      pen.fillStyle = color(place === this.atom ? "ink" : "soft");
      pen.textAlign = "right";
      pen.fillText(this.names[place], this.margin - 5, center(place));
      pen.save();
      pen.translate(center(place), this.margin - 5);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(this.names[place], 0, 0);
      pen.restore();
    }
  }
}
