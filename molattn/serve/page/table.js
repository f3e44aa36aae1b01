// Many molecules as a table: sorted, filtered, a page of rows at a time.
import { draw } from "./molecule.js";
import { Plot } from "./plot.js";
import { barOf, className, confidenceTag, groups, isMostlyLow, isNumber, measuredTag, quantity, titleOf, unitOf, valueText, verdictOf } from "./properties.js";
import { button, count, debounced, element, number, plural } from "./shared.js";
import { sitesText } from "./sites.js";

const ROWS = 50;
const KINDS = { all: "all molecules", fair: "mostly high or medium confidence", low: "mostly low confidence",
  failed: "without a prediction" };
const rounded = (value, isNumeric) => value && (isNumeric ? Number(value.toPrecision(3)) : Math.round(100 * value));
const kindOf = (answer) => (answer.error !== null ? "failed" : isMostlyLow(answer) ? "low" : "fair");

export class MoleculeTable {
  // `context` gives model, against, score and the columns of files; `open` is called with the row to show.
  constructor(host, context, open) {
    this.host = host;
    this.plot = new Plot(context, () => this.turn(0), open);
    this.context = context;
    this.open = open;
    this.seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        this.seen.unobserve(target);
        draw(target, target.dataset.of, 120, 76);
      }
    }, { rootMargin: "200px" });
  }

  show(rows) {
    const key = this.context.score.parts.length ? "score" : "place";
    Object.assign(this, { rows, sort: [{ key, down: key === "score" }], page: 0, excluded: new Set(), drawn: null });
    this.build();
    this.plot.reset();
    this.refresh();
  }

  close() {
    this.rows = [];
    this.host.replaceChildren();
  }

  // Shows a page of the rows.
  turn(page) {
    this.page = page;
    this.refresh();
  }

  // Sorts by the score where it is new, and no longer where there is none.
  rescore() {
    const isOn = this.context.score.parts.length > 0;
    const isSorted = this.sort.some(({ key }) => key === "score");
    if (isOn && !this.hasScore) this.sort = [{ key: "score", down: true }];
    if (!isOn && isSorted) this.sort = [{ key: "place", down: false }];
    this.drawn = null; // the scores of the same rows may be others
    this.turn(0);
  }

  build() {
    const { tasks } = this.context.model;
    const first = () => this.turn(0);
    const later = debounced(first, 150);
    const field = (label, control) => element("label", {}, element("span", {}, label), control);
    const option = (value, text) => element("option", { value }, text);
    this.search = element("input", { type: "search", placeholder: "name or SMILES", on: { input: later } });
    const kinds = Object.entries(KINDS).filter(([value]) => tasks.length || ["all", "failed"].includes(value));
    this.kind = element("select", { on: { change: first } }, ...kinds.map(([value, text]) => option(value, text)));
    this.property = element("select", { on: { change: first } }, option("", "any property"),
      ...groups(tasks).map(([label, own]) => element("optgroup", { label },
        ...own.map((task) => option(task.name, `${titleOf(task)}${isNumber(task) ? "" : " (%)"}`)))));
    [this.from, this.to] = ["from", "to"].map((name) => element("input",
      { type: "number", step: "any", "aria-label": `${name} value`, placeholder: name, on: { input: later } }));
    this.found = element("p", { class: "found", role: "status" });
    this.unselect = button("Show all", () => this.plot.clear(), { class: "quiet", hidden: true, title: "Show also what is not selected in the plot" });
    this.table = element("table");
    this.steps = element("nav", { class: "steps", "aria-label": "Pages of the table" });
    this.host.replaceChildren(
      element("div", { class: "filters" }, field("Search", this.search), field("Show", this.kind),
        tasks.length > 0 && element("div", { class: "range" }, field("With", this.property), this.from, this.to),
        tasks.length > 1 && element("details", { class: "columns" }, element("summary", {}, "Columns"),
          element("div", {}, ...groups(tasks).map((group) => this.boxes(group))))),
      element("div", { class: "tools", hidden: !tasks.length }, this.plot.host, this.context.score.host),
      element("div", { class: "over" }, this.found, this.unselect, this.steps),
      element("div", { class: "table wide", tabindex: 0, role: "region", "aria-label": "Predictions" }, this.table));
  }

  boxes([name, tasks]) {
    const toggle = (event, task) => {
      this.excluded[event.target.checked ? "delete" : "add"](task);
      this.refresh();
    };
    return element("fieldset", {}, element("legend", {}, name), ...tasks.map((task) => element("label", {},
      element("input", { type: "checkbox", checked: true, on: { change: (event) => toggle(event, task) } }), titleOf(task))));
  }

  // The rows that are shown, in order.
  get order() {
    return this.sorted(this.filtered.filter((row) => this.plot.isSelected(row)));
  }

  // The rows that fit the fields, of which the plot may select some.
  get filtered() {
    const sought = this.search.value.trim().toLowerCase();
    const task = this.context.model.tasks.find(({ name }) => name === this.property.value);
    const scale = task && !isNumber(task) ? 100 : 1;
    const [from, to] = [this.from, this.to].map((one) => (one.value === "" ? null : Number(one.value) / scale));
    return this.rows.filter(({ name, smiles, answer }) => {
      const texts = [name, smiles, answer.smiles ?? "", answer.error ?? ""];
      if (!texts.some((text) => text.toLowerCase().includes(sought))) return false;
      if (!["all", kindOf(answer)].includes(this.kind.value)) return false;
      if (!task || (from === null && to === null)) return true;
      const value = quantity(task, answer);
      return value !== null && (from === null || value >= from) && (to === null || value <= to);
    });  }

  // By the first column that is sorted by, then by the next where that is equal.
  sorted(rows) {
    const order = this.sort.map(({ key, down }) => [this.valueBy(key), down ? -1 : 1]);
    return rows.map((row) => [order.map(([of]) => of(row)), row]).sort(([a, one], [b, other]) => {
      for (const [at, [, turn]] of order.entries()) {
        const [left, right] = [a[at], b[at]];
        if (left === right) continue;
        if (left === null || right === null) return left === null ? 1 : -1; // last, always
        return left < right ? -turn : turn;
      }
      return one.place - other.place;
    }).map(([, row]) => row);
  }

  // What rows are sorted by: as it is printed, so that values that look equal are.
  valueBy(key) {
    const task = this.context.model.tasks.find(({ name }) => `=${name}` === key);
    return task ? (row) => rounded(quantity(task, row.answer), isNumber(task)) : {
      place: (row) => row.place,
      molecule: (row) => (row.name || row.answer.smiles || row.smiles).toLowerCase(),
      similarity: (row) => row.answer.training_similarity,
      score: (row) => this.context.score.of(row.answer),
    }[key];
  }

  // A column alone, or with Shift after those that are sorted by already.
  sortBy(key, adds) {
    const known = this.sort.find((one) => one.key === key);
    const next = { key, down: known ? !known.down : false };
    if (!adds) this.sort = [next];
    else if (known) known.down = !known.down;
    else this.sort = [...this.sort.filter((one) => one.key !== "place"), next];
    this.turn(0);
  }

  refresh() {
    this.plot.show(this.filtered);
    const { order } = this;
    this.hasScore = this.context.score.parts.length > 0;
    this.unselect.hidden = !this.plot.selection;
    const last = Math.max(0, Math.ceil(order.length / ROWS) - 1);
    this.page = Math.min(this.page, last);
    const start = this.page * ROWS;
    const shown = order.slice(start, start + ROWS);
    const done = plural(this.rows.length, "molecule");
    const all = order.length === this.rows.length ? done : `${count(order.length)} of ${done}`;
    const selected = this.plot.selection ? ", selected in the plot" : "";
    const at = last ? `, rows ${count(start + 1)} to ${count(start + shown.length)}` : "";
    this.found.textContent = `${all}${selected}${at}`;
    this.showSteps(last);
    const tasks = this.context.model.tasks.filter((task) => !this.excluded.has(task));
    const drawn = JSON.stringify([shown.map(({ place }) => place), this.sort, tasks.length, this.hasScore, this.context.against()]);
    if (drawn === this.drawn) return; // as mostly when rows arrive: those in view stay as they are
    this.drawn = drawn;
    this.seen.disconnect();
    const focused = this.table.contains(document.activeElement) && document.activeElement.dataset.key;
    this.table.replaceChildren(this.head(tasks), element("tbody", {}, ...shown.map((row) => this.line(row, tasks))));
    if (focused) this.table.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    if (!shown.length && this.rows.length) {
      this.table.append(element("caption", {}, "No molecule fits. Clear the search or widen the limits."));
    }
  }

  showSteps(last) {
    const focused = document.activeElement?.dataset.step;
    const steps = { First: 0, Previous: this.page - 1, Next: this.page + 1, Last: last };
    this.steps.replaceChildren(...Object.entries(last ? steps : {}).map(([text, page]) => {
      const isOff = page < 0 || page > last || page === this.page;
      return button(text, () => isOff || this.turn(page), { "data-step": text, "aria-disabled": isOff });
    }));
    if (focused) this.steps.querySelector(`[data-step=${focused}]`)?.focus();
  }

  head(tasks) {
    const cell = (key, text, help, unit = "", attributes = {}) => {
      const at = this.sort.findIndex((one) => one.key === key);
      const sort = at < 0 ? "none" : this.sort[at].down ? "descending" : "ascending";
      const place = at >= 0 && this.sort.length > 1 && element("sup", {}, String(at + 1));
      return element("th", { scope: "col", "aria-sort": sort, ...attributes },
        button(text, (event) => this.sortBy(key, event.shiftKey), { "data-key": `head ${key}`,
          title: `${help}${help && "\n"}Press to sort; with Shift after the columns already sorted by` }), place, unit && element("small", {}, unit));
    };
    const named = groups(tasks);
    const starts = new Set(named.map(([, [task]]) => task));
    const over = named.length > 1 && element("tr", {}, element("td", { colspan: 3 + this.hasScore }), ...named.map(([name, own]) =>
      element("th", { scope: "colgroup", colspan: own.length, class: "group" }, name)));
    return element("thead", {}, over, element("tr", {},
      cell("place", "Row", "The line of the text, or the row of the file", "", { class: "row" }),
      cell("molecule", "Molecule", "By its name, or else by its SMILES", "", { class: "molecule" }),
      this.hasScore && cell("score", "Score", "How desirable the molecule is, from 0 to 1, by the properties of Score", "0 to 1", { class: "num" }),
      !this.context.model.tasks.length ? element("th", { scope: "col" }, "Predicted")
        : cell("similarity", "Similarity", "To the nearest training molecule: 1 is the same, below 0.4 is far", "to training", { class: "num" }),
      ...tasks.map((task) => cell(`=${task.name}`, titleOf(task), task.card?.description ?? "", isNumber(task) ? unitOf(task)
        : task.kind === "binary" ? "probability" : "class", { class: `num ${over && starts.has(task) ? "first" : ""}` }))));
  }

  line(row, tasks) {
    const { answer, place } = row;
    const smiles = answer.smiles || row.smiles;
    const thumb = element("div", { class: "thumb", "data-of": smiles });
    const opener = button(row.name || smiles || "(empty)", () => this.open(row),
      { class: "link", "data-key": `row ${place}`, title: smiles });
    if (answer.error === null) this.seen.observe(thumb);
    return element("tr", {}, element("td", { class: "row" }, count(place)),
      element("th", { scope: "row", class: "molecule" }, element("div", {}, thumb, opener)),
      ...(answer.error === null ? this.cells(answer, tasks)
        : [element("td", { class: "reason", colspan: tasks.length + 1 + this.hasScore }, element("span", {},
          element("code", {}, answer.error), `No prediction: ${answer.message || answer.error}`))]));
  }

  cells(answer, tasks) {
    const cell = (...content) => element("td", { class: "num" }, ...content);
    if (!this.context.model.tasks.length) return [element("td", {}, sitesText(answer))];
    return [this.hasScore && this.scoreCell(answer), cell(number(answer.training_similarity, 2)), ...tasks.map((task) => {
      const { main, unit } = valueText(task, answer);
      const text = task.kind === "multiclass" ? `${className(task, main)} ${unit}` : main;
      const { verdict, why } = verdictOf(task, answer);
      const value = element("span", { class: verdict, title: verdict && why }, text,
        verdict && element("span", { class: "hidden" }, ` ${verdict}`));
      return cell(value, barOf(task, answer, this.context.against()), confidenceTag(task, answer),
        answer.predictions[task.name].measured_remark && measuredTag(task, answer));
    })];
  }

  scoreCell(answer) {
    const { score } = this.context;
    const value = score.of(answer);
    const fill = element("i", { class: "fill" });
    fill.style.width = `${100 * value}%`;
    return element("td", { class: "num", title: value === null ? null : score.wordsOf(answer) }, number(value, 2),
      element("div", { class: "bar share", "aria-hidden": "true" }, fill));
  }
}
