// Many molecules as a table: sorted, filtered, a page of rows at a time.
import { button, debounced, element } from "./dom.js";
import { draw } from "./molecule.js";
import { count, number, plural } from "./numbers.js";
import { barOf, className, groups, isBeyond, isNumber, quantity, titleOf, unitOf, valueText } from "./properties.js";

const ROWS = 50;

export class MoleculeTable {
  // `context` gives model and against; `open` is called with the row to show.
  constructor(host, context, open) {
    this.host = host;
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
    this.rows = rows;
    this.sort = { key: "place", down: false };
    this.page = 0;
    this.left_out = new Set();
    this.drawn = null;
    this.build();
    this.refresh();
  }

  close() {
    this.rows = [];
    this.host.replaceChildren();
  }

  build() {
    const { model } = this.context;
    const changed = () => {
      this.page = 0;
      this.refresh();
    };
    const later = debounced(changed, 150);
    const field = (label, control) => element("label", {}, element("span", {}, label), control);
    this.search = element("input", { type: "search", placeholder: "name or SMILES", on: { input: later } });
    this.kind = element("select", { on: { change: changed } }, ...[
      ["all", "all molecules"], ["inside", "like the training molecules"], ["beyond", "beyond what the model knows"],
      ["failed", "without a prediction"],
    ].map(([value, text]) => element("option", { value }, text)));
    this.property = element("select", { on: { change: changed } }, element("option", { value: "" }, "any property"),
      ...groups(model.tasks).map(([name, tasks]) => element("optgroup", { label: name },
        ...tasks.map((task) => element("option", { value: task.name }, `${titleOf(task)}${isNumber(task) ? "" : " (%)"}`)))));
    [this.from, this.to] = ["from", "to"].map((name) => element("input",
      { type: "number", step: "any", "aria-label": `${name} value`, placeholder: name, on: { input: later } }));
    this.found = element("p", { class: "found", role: "status" });
    const boxes = groups(model.tasks).map(([name, tasks]) => element("fieldset", {}, element("legend", {}, name),
      ...tasks.map((task) => element("label", {}, element("input", { type: "checkbox", checked: true, on: {
        change: (event) => {
          this.left_out[event.target.checked ? "delete" : "add"](task.name);
          this.refresh();
        },
      } }), titleOf(task)))));
    this.table = element("table");
    this.steps = element("nav", { class: "steps", "aria-label": "Pages of the table" });
    this.host.replaceChildren(
      element("div", { class: "filters" }, field("Search", this.search), field("Show", this.kind),
        element("div", { class: "range" }, field("With", this.property), this.from, this.to),
        model.tasks.length > 1 ? element("details", { class: "columns" }, element("summary", {}, "Columns"),
          element("div", {}, ...boxes)) : null),
      element("div", { class: "over" }, this.found, this.steps),
      element("div", { class: "table wide", tabindex: 0, role: "region", "aria-label": "Predictions" }, this.table));
  }

  // The rows that are shown, in order.
  get order() {
    const { model } = this.context;
    const sought = this.search.value.trim().toLowerCase();
    const task = model.tasks.find(({ name }) => name === this.property.value);
    const scale = task && !isNumber(task) ? 100 : 1;
    const [from, to] = [this.from, this.to].map((one) => (one.value === "" ? null : Number(one.value) / scale));
    const kept = this.rows.filter((row) => {
      const { answer } = row;
      if (answer === null) return false;
      const texts = [row.name, row.smiles, answer.smiles ?? "", answer.error ?? ""];
      if (sought && !texts.some((text) => text.toLowerCase().includes(sought))) return false;
      const kind = answer.error !== null ? "failed" : answer.in_domain === false ? "beyond" : "inside";
      if (this.kind.value !== "all" && this.kind.value !== kind) return false;
      if (!task || (from === null && to === null)) return true;
      const value = quantity(task, answer);
      return value !== null && (from === null || value >= from) && (to === null || value <= to);
    });
    return this.sorted(kept);
  }

  sorted(rows) {
    const { key, down } = this.sort;
    const task = this.context.model.tasks.find(({ name }) => `=${name}` === key);
    const of = task ? (row) => quantity(task, row.answer) : {
      place: (row) => row.place,
      molecule: (row) => (row.name || row.answer.smiles || row.smiles).toLowerCase(),
      similarity: (row) => row.answer.training_similarity,
    }[key];
    const turn = down ? -1 : 1;
    return rows.map((row) => [of(row), row]).sort(([a, one], [b, other]) => {
      if (a === null || b === null) return (a === null) - (b === null) || one.place - other.place; // last, always
      return (a < b ? -turn : a > b ? turn : 0) || one.place - other.place;
    }).map(([, row]) => row);
  }

  refresh() {
    const order = this.order;
    const last = Math.max(0, Math.ceil(order.length / ROWS) - 1);
    this.page = Math.min(this.page, last);
    const start = this.page * ROWS;
    const shown = order.slice(start, start + ROWS);
    const done = this.rows.reduce((sum, row) => sum + (row.answer !== null), 0);
    const all = order.length === done ? plural(done, "molecule") : `${count(order.length)} of ${plural(done, "molecule")}`;
    this.found.textContent = last ? `${all}, rows ${count(start + 1)} to ${count(start + shown.length)}` : all;
    this.stepper(last);
    const tasks = this.context.model.tasks.filter(({ name }) => !this.left_out.has(name));
    const drawn = JSON.stringify([shown.map(({ place }) => place), this.sort, [...this.left_out], this.context.against()]);
    if (drawn === this.drawn) return; // as mostly when rows arrive: those in view stay as they are
    this.drawn = drawn;
    this.seen.disconnect();
    const focused = document.activeElement?.closest?.("table") === this.table ? document.activeElement.dataset.key : null;
    this.table.replaceChildren(this.head(tasks), element("tbody", {}, ...shown.map((row) => this.line(row, tasks))));
    if (focused) this.table.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    if (!shown.length) {
      this.table.append(element("caption", {}, done ? "No molecule fits. Clear the search or widen the limits." : ""));
    }
  }

  stepper(last) {
    const go = (page) => {
      this.page = page;
      this.refresh();
      this.host.querySelector(".over").scrollIntoView({ block: "nearest" });
    };
    if (!last) return this.steps.replaceChildren();
    const focused = document.activeElement?.dataset?.step;
    this.steps.replaceChildren(...[["First", 0], ["Previous", this.page - 1], ["Next", this.page + 1], ["Last", last]]
      .map(([text, page]) => button(text, () => go(page), {
        "data-step": text, "aria-disabled": page < 0 || page > last || page === this.page,
      })));
    for (const one of this.steps.children) {
      if (one.getAttribute("aria-disabled") === "true") one.addEventListener("click", (event) => event.stopImmediatePropagation(), true);
      if (focused && one.dataset.step === focused) one.focus();
    }
    return undefined;
  }

  head(tasks) {
    const cell = (key, text, unit = "", attributes = {}) => {
      const current = this.sort.key === key;
      const sort = current ? (this.sort.down ? "descending" : "ascending") : "none";
      return element("th", { scope: "col", "aria-sort": sort, ...attributes }, button(text, () => {
        this.sort = { key, down: current && !this.sort.down };
        this.page = 0;
        this.refresh();
      }, { "data-key": `head ${key}` }), unit ? element("small", {}, unit) : null);
    };
    const named = groups(tasks);
    const starts = new Set(named.map(([, [task]]) => task));
    const over = named.length > 1 && element("tr", {}, element("td", { colspan: 3 }), ...named.map(([name, part]) =>
      element("th", { scope: "colgroup", colspan: part.length, class: "group" }, name)));
    return element("thead", {}, over, element("tr", {},
      cell("place", "Row", "", { class: "row" }), cell("molecule", "Molecule", "", { class: "molecule" }),
      cell("similarity", "Similarity", "to training", { class: "num" }),
      ...tasks.map((task) => cell(`=${task.name}`, titleOf(task), isNumber(task) ? unitOf(task)
        : task.kind === "binary" ? "probability" : "class", { class: `num ${over && starts.has(task) ? "first" : ""}` }))));
  }

  line(row, tasks) {
    const { answer } = row;
    const smiles = answer.smiles || row.smiles;
    const thumb = element("div", { class: "thumb", "data-of": smiles });
    const name = row.name || smiles || "(empty)";
    const opener = button(name, () => this.open(row), { class: "link", "data-key": `row ${row.place}`, title: smiles });
    const cells = answer.error !== null
      ? [element("td", { class: "reason", colspan: tasks.length + 1 }, element("span", {},
        element("code", {}, answer.error), `No prediction: ${answer.message || answer.error}`))]
      : [element("td", { class: "num" }, answer.training_similarity === null ? "-" : number(answer.training_similarity, 2),
        answer.in_domain === false ? element("span", { class: "tag" }, "beyond") : null),
      ...tasks.map((task) => this.cell(task, answer))];
    if (answer.error === null) this.seen.observe(thumb);
    return element("tr", {}, element("td", { class: "row" }, count(row.place)),
      element("th", { scope: "row", class: "molecule" }, element("div", {}, thumb, opener)), ...cells);
  }

  cell(task, answer) {
    const { main, unit } = valueText(task, answer);
    const text = isNumber(task) || !unit ? main : task.kind === "binary" ? main : `${className(task, main)} ${unit}`;
    const beyond = answer.in_domain && isBeyond(task, answer) ? element("span", { class: "tag" }, "beyond") : null;
    return element("td", { class: "num" }, text, barOf(task, answer, this.context.against()), beyond);
  }
}
