// A histogram or a scatter plot of the columns of a table, colored by a third; dragging over it selects rows.
import { columnsOf } from "./columns.js";
import { draw } from "./molecule.js";
import { button, count, debounced, element, number, plural } from "./shared.js";

const MARGIN = { left: 58, right: 14, top: 10, bottom: 46 };
const BINS = 24;
const GROUPS = 5; // colors of numbers, with as many molecules each
const REACH = 12; // pixels from a point
const LARGEST_RATIO = 1000; // of values on a linear axis
const AXES = ["x", "y"];

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const LETTER = 7.5; // pixels, about
const cut = (text, pixels) => (text.length * LETTER > pixels ? `${text.slice(0, Math.floor(pixels / LETTER) - 1)}\u2026` : text);
const withinOf = ([low, high], value) => value !== null && value >= low && value <= high;

// An axis of values: `at` is from 0 to 1, `value` its inverse.
function axisOf(values, isCount = false) {
  let [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  if (low > high) [low, high] = [0, 1];
  if (low > 0 && high / low >= LARGEST_RATIO && !isCount) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const step = Math.ceil((last - first) / 6);
    const powers = Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, at) => 10 ** (first + at * step));
    return { isLog: true, ticks: powers, at: (value) => (Math.log10(value) - first) / (last - first),
      value: (share) => 10 ** (first + share * (last - first)) };
  }
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(isCount ? 1 : 0, power * [1, 2, 5, 10].find((one) => one * power >= rough));
  const [first, last] = [Math.floor(low / step), Math.ceil(high / step)];
  const [start, end] = [first * step, last * step];
  const ticks = Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
  return { isLog: false, ticks, at: (value) => (value - start) / (end - start), value: (share) => start + share * (end - start) };
}

// The colors of rows: { labels, of }, where `of` gives the place of a row's label, or -1.
function colorsOf(column, rows) {
  if (!column) return { labels: [], of: () => 0 };
  const values = rows.map(column.of).filter((value) => value !== null);
  if (column.isText) {
    const labels = [...new Set(values)].sort();
    return { labels, of: (row) => labels.indexOf(column.of(row)) };
  }
  values.sort((a, b) => a - b);
  const ends = [...new Set(Array.from({ length: GROUPS }, (_, at) => values[Math.ceil(((at + 1) * values.length) / GROUPS) - 1]))];
  const labels = ends.map((end, at) => `${number(at ? ends[at - 1] : values[0])} to ${number(end)}`);
  return { isScale: true, labels, of: (row) => (column.of(row) === null ? -1 : ends.findIndex((end) => column.of(row) <= end)) };
}

export class Plot {
  // `context` gives model, own and score; `selected` is called when other rows are, `open` with a row to show.
  constructor(context, selected, open) {
    Object.assign(this, { context, changed: selected, open, rows: [], selection: null, choices: { x: "", y: "", color: "" } });
    const choose = (name, label, help) => {
      const made = element("select", { title: help, on: { change: () => this.choose(name, made.value) } });
      return [made, element("label", {}, element("span", {}, label), made)];
    };
    const [x, xLabel] = choose("x", "Across", "What the horizontal axis shows");
    const [y, yLabel] = choose("y", "Up", "What the vertical axis shows; the number of molecules makes a histogram");
    const [color, colorLabel] = choose("color", "Color", "What the points are colored by");
    this.selects = { x, y, color };
    const select = debounced(() => this.selectWithin(), 250);
    this.ends = Object.fromEntries(AXES.map((axis) => [axis, ["from", "to"].map((name) => element("input", { type: "number",
      step: "any", placeholder: name, "aria-label": `${axis === "x" ? "across" : "up"}, ${name}`,
      title: "Select the molecules within these values, as dragging over the plot does", on: { input: select } }))]));
    this.range = element("div", { class: "range" }, element("span", { class: "soft" }, "Select across"), ...this.ends.x,
      this.up = element("span", { class: "soft" }, "up"), ...this.ends.y);
    this.figure = element("div", { class: "figure" });
    this.legend = element("p", { class: "legend" });
    this.card = element("div", { class: "point", hidden: true, "aria-hidden": "true" });
    this.host = element("details", { class: "tool plot", on: { toggle: () => this.show(this.rows) } },
      element("summary", { title: "A histogram or a scatter plot of any columns, in which rows can be selected" }, "Plot"),
      element("div", {}, element("div", { class: "filters" }, xLabel, yLabel, colorLabel),
        element("div", { class: "drawn" }, this.figure, this.card), this.legend, this.range));
    new ResizeObserver(debounced(() => this.draw(), 60)).observe(this.figure);
  }

  // Shows rows, those of the selection (a set; null = all) before the others.
  show(rows) {
    this.rows = rows;
    if (!this.host.open) return;
    this.columns = columnsOf(this.context, this.context.rows());
    this.fill();
    this.draw();
  }

  fill() {
    const groupsOf = (columns) => [...new Set(columns.map(({ group }) => group))].map((label) => [label, columns.filter(({ group }) => group === label)]);
    const numbers = this.columns.filter(({ isText }) => !isText);
    const { choices } = this;
    choices.x ||= numbers[0].key;
    for (const [name, select] of Object.entries(this.selects)) {
      const columns = name === "color" ? this.columns : numbers;
      const first = { x: null, y: "number of molecules", color: "one color" }[name];
      const drawn = JSON.stringify(columns.map(({ key, title }) => [key, title]));
      if (select.dataset.drawn === drawn) continue;
      select.dataset.drawn = drawn;
      if (!columns.some(({ key }) => key === choices[name])) choices[name] = first === null ? numbers[0].key : "";
      select.replaceChildren(first !== null && element("option", { value: "" }, first) || "", ...groupsOf(columns).map(([label, own]) =>
        element("optgroup", { label }, ...own.map(({ key, title }) => element("option", { value: key }, title)))));
      select.value = choices[name];
    }
  }

  choose(name, key) {
    this.choices[name] = key;
    this.empty(); // the selection stays
    this.draw();
  }

  column(name) {
    return this.columns.find(({ key }) => key === this.choices[name]);
  }

  draw() {
    const width = this.figure.clientWidth;
    if (!this.host.open || !width || !this.columns) return;
    const [x, y] = AXES.map((name) => this.column(name));
    const height = Math.round(Math.min(400, Math.max(260, 0.55 * width)));
    this.size = { width, height, wide: width - MARGIN.left - MARGIN.right, high: height - MARGIN.top - MARGIN.bottom };
    const points = this.rows.map((row) => ({ row, values: { x: x.of(row), y: y ? y.of(row) : 0 } }))
      .filter(({ values }) => values.x !== null && values.y !== null);
    const colors = colorsOf(this.column("color"), points.map(({ row }) => row));
    this.axes = { x: axisOf(points.map(({ values }) => values.x)) };
    this.points = y ? points : [];
    const marks = y ? this.scatter(points, colors) : this.bars(points, colors);
    this.up.hidden = !y;
    for (const field of this.ends.y) field.hidden = !y;
    const label = y ? `${y.title} against ${x.title}, ${plural(points.length, "molecule")}` : `Histogram of ${x.title}, ${plural(points.length, "molecule")}`;
    this.brush = svg("rect", { class: "brush", width: 0, height: 0 });
    const picture = svg("svg", { width, height, role: "img", "aria-label": label },
      ...this.frame(x.title, y ? y.title : "Number of molecules"), ...marks, this.brush);
    this.listen(picture);
    this.figure.replaceChildren(picture);
    this.legend.replaceChildren(...colors.labels.map((text, at) => element("span", {},
      element("i", { class: `${colors.isScale ? "scale" : "class"}-${at}` }), text)));
    if (points.length < this.rows.length) {
      this.legend.append(element("span", {}, `${count(this.rows.length - points.length)} without a value are not shown`));
    }
  }

  left(value) {
    return MARGIN.left + this.size.wide * this.axes.x.at(value);
  }

  top(value) {
    return MARGIN.top + this.size.high * (1 - this.axes.y.at(value));
  }

  isSelected(row) {
    return this.selection === null || this.selection.has(row);
  }

  // Points are lines without length with round ends: one path for each color.
  scatter(points, colors) {
    this.axes.y = axisOf(points.map(({ values }) => values.y));
    const paths = new Map();
    for (const point of points) {
      [point.left, point.top] = [this.left(point.values.x), this.top(point.values.y)];
      const at = colors.of(point.row);
      const kind = at < 0 ? "none" : `${colors.isScale ? "scale" : "class"}-${at}`;
      const name = `dots ${kind} ${this.isSelected(point.row) ? "" : "faint"}`;
      paths.set(name, `${paths.get(name) ?? ""}M${point.left.toFixed(1)} ${point.top.toFixed(1)}h0`);
    }
    return [...paths].sort(([a], [b]) => b.endsWith("faint") - a.endsWith("faint")).map(([name, d]) => svg("path", { class: name, d }));
  }

  bars(points, colors) {
    const binOf = (value) => Math.min(BINS - 1, Math.floor(BINS * this.axes.x.at(value)));
    const bins = Array.from({ length: BINS }, () => new Map());
    const sizes = new Array(BINS).fill(0);
    for (const { row, values } of points) {
      const at = colors.of(row);
      const kind = at < 0 ? "none" : `${colors.isScale ? "scale" : "class"}-${at}`;
      const name = `${kind} ${this.isSelected(row) ? "" : "faint"}`;
      const own = bins[binOf(values.x)];
      own.set(name, (own.get(name) ?? 0) + 1);
      sizes[binOf(values.x)] += 1;
    }
    this.axes.y = axisOf([0, ...sizes], true);
    return bins.flatMap((own, bin) => {
      let below = 0;
      const faintLast = ([a], [b]) => a.endsWith("faint") - b.endsWith("faint") || a.localeCompare(b);
      return [...own].sort(faintLast).map(([name, size]) => {
        const [top, bottom] = [this.top(below + size), this.top(below)];
        below += size;
        return svg("rect", { class: `pile ${name}`, x: MARGIN.left + (this.size.wide * bin) / BINS + 0.5, y: top,
          width: this.size.wide / BINS - 1, height: bottom - top });
      });
    });
  }

  frame(across, up) {
    const { width, height, wide, high } = this.size;
    const text = (value) => (Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3) ? number(value, 1) : String(value).replace("-", "\u2212"));
    const named = (title, { isLog }, pixels) => (isLog ? `${cut(title, pixels - 75)}, log scale` : cut(title, pixels));
    const lines = [...this.axes.y.ticks.map((value) => ["y", value]), ...this.axes.x.ticks.map((value) => ["x", value])];
    return [...lines.flatMap(([axis, value]) => (axis === "y"
      ? [svg("line", { class: "grid", x1: MARGIN.left, x2: MARGIN.left + wide, y1: this.top(value), y2: this.top(value) }),
        svg("text", { x: MARGIN.left - 8, y: this.top(value) + 4, "text-anchor": "end" }, text(value))]
      : [svg("line", { class: "grid", x1: this.left(value), x2: this.left(value), y1: MARGIN.top, y2: MARGIN.top + high }),
        svg("text", { x: this.left(value), y: height - MARGIN.bottom + 18, "text-anchor": "middle" }, text(value))])),
    svg("text", { class: "axis", x: MARGIN.left + wide / 2, y: height - 6, "text-anchor": "middle" }, named(across, this.axes.x, wide)),
    svg("text", { class: "axis", x: -(MARGIN.top + high / 2), y: 13, "text-anchor": "middle", transform: "rotate(-90)" }, named(up, this.axes.y, high)),
    svg("rect", { class: "area", x: 0, y: 0, width, height })];
  }

  // Drags, clicks and what is under the mouse.
  listen(picture) {
    let from = null;
    const at = (event) => {
      const { left, top } = picture.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    const isDrag = (to) => Math.hypot(to[0] - from[0], to[1] - from[1]) > 4;
    const act = {
      pointerdown: (event) => {
        from = at(event);
        picture.setPointerCapture(event.pointerId);
      },
      pointermove: (event) => {
        if (from === null) this.point(this.nearest(at(event)));
        else if (isDrag(at(event))) this.sweep(from, at(event));
      },
      pointerup: (event) => {
        if (from === null) return;
        const to = at(event);
        if (isDrag(to)) this.select(from, to);
        else if (this.nearest(to)) this.open(this.nearest(to).row);
        else this.clear();
        from = null;
      },
      pointercancel: () => {
        from = null;
        this.brush.setAttribute("width", 0);
      },
      pointerleave: () => this.point(null),
    };
    for (const [name, one] of Object.entries(act)) picture.addEventListener(name, one);
  }

  sweep(from, to) {
    const [top, bottom] = this.choices.y ? [Math.min(from[1], to[1]), Math.max(from[1], to[1])] : [MARGIN.top, MARGIN.top + this.size.high];
    const place = { x: Math.min(from[0], to[0]), y: top, width: Math.abs(to[0] - from[0]), height: bottom - top };
    for (const [name, value] of Object.entries(place)) this.brush.setAttribute(name, value);
    this.point(null);
  }

  // Selects the molecules of a rectangle, whose values are written into the fields.
  select(from, to) {
    const shares = { x: [from[0], to[0]].map((one) => (one - MARGIN.left) / this.size.wide),
      y: [from[1], to[1]].map((one) => 1 - (one - MARGIN.top) / this.size.high) };
    for (const axis of this.choices.y ? AXES : ["x"]) {
      const values = shares[axis].map((share) => this.axes[axis].value(share)).sort((a, b) => a - b);
      this.ends[axis].forEach((field, at) => { field.value = Number(values[at].toPrecision(4)); });
    }
    this.selectWithin();
  }

  // Selects the molecules within the fields.
  selectWithin() {
    const limits = Object.fromEntries(AXES.map((axis) => [axis, this.ends[axis].map(({ value }, at) => (value === "" ? [-Infinity, Infinity][at] : Number(value)))]));
    const [x, y] = AXES.map((name) => this.column(name));
    const within = this.rows.filter((row) => withinOf(limits.x, x.of(row)) && (!y || withinOf(limits.y, y.of(row))));
    const isAny = AXES.some((axis) => this.ends[axis].some(({ value }) => value !== ""));
    this.selection = isAny ? new Set(within) : null;
    this.changed();
  }

  // Selects all.
  reset() {
    this.empty();
    this.selection = null;
  }

  clear() {
    this.reset();
    this.changed();
  }

  empty() {
    for (const field of AXES.flatMap((axis) => this.ends[axis])) field.value = "";
  }

  nearest([left, top]) {
    const far = (point) => Math.hypot(point.left - left, point.top - top);
    const found = this.points.reduce((best, point) => (far(point) < (best ? far(best) : REACH) ? point : best), null);
    return found;
  }

  // A card of the molecule under the mouse.
  point(found) {
    this.card.hidden = !found;
    this.figure.classList.toggle("over", Boolean(found));
    if (!found || this.pointed === found.row && this.card.childElementCount) return;
    const { row, values } = found;
    this.pointed = row;
    const thumb = element("div", { class: "thumb" });
    draw(thumb, row.answer.smiles, 120, 76);
    this.card.replaceChildren(thumb, element("strong", {}, row.name || `Row ${row.place}`),
      element("span", {}, `${number(values.x)}, ${number(values.y)}`));
    this.card.style.left = `${Math.min(found.left + 14, this.size.width - 150)}px`;
    this.card.style.top = `${Math.max(0, found.top - 60)}px`;
  }
}
