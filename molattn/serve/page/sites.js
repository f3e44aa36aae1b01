// Predictions of the atoms or bonds of a molecule: one property drawn on the structure, and as a table.
import { drawSites } from "./api.js";
import { className, isNumber, titleOf, unitOf } from "./properties.js";
import { element, number, percent, picture, plural } from "./shared.js";

// The properties of atoms and of bonds of a model, each with its level.
export const siteTasksOf = (model) => ["atom", "bond"].flatMap((level) =>
  model[`${level}_tasks`].map((task) => ({ ...task, level })));

// How many atoms and bonds of a molecule have a prediction: "9 atoms, 8 bonds".
export const sitesText = (answer) => ["atom", "bond"].map((level) => {
  const columns = Object.values(answer[`${level}s`] ?? {});
  return columns.length && plural(columns[0].filter((_, at) => columns.some((values) => values[at] !== null)).length, level);
}).filter(Boolean).join(", ");

const COLORS = "Blue is below the mean of the training labels, orange above.";
const legendOf = (task) => {
  if (isNumber(task)) return COLORS;
  const of = task.kind === "binary" ? className(task, task.classes.at(-1)) : "the most probable class";
  return `Probability of ${of}: the higher, the deeper the violet.`;
};

// The columns of a table: [title, values], of which those of classes have the probability that is drawn.
function columnsOf(task, predictions, level) {
  const [values, ...shares] = Object.values(predictions);
  const { name } = task;
  if (isNumber(task)) {
    const [low, high, error] = ["low", "high", "expected_error"].map((end) => predictions[`${name}_${end}`]);
    const unit = unitOf(task);
    return [["Prediction", values.map((value) => number(value)), unit],
      low && [`${percent(level)} interval`, low.map((value, at) => (value === null ? "-" : `${number(value)} to ${number(high[at])}`)), unit],
      error && ["Expected error", error.map((value) => number(value)), unit]].filter(Boolean);
  }
  const drawn = values.map((value, at) => (value === null ? "-" : percent(Math.max(...shares.map((share) => share[at])))));
  return [["Class", values.map((value) => (value === null ? "-" : className(task, value)))],
    ["Probability", drawn, task.kind === "binary" ? `of ${className(task, task.classes.at(-1))}` : ""]];
}

export class SitesCard {
  // `context` gives model and options, and keeps the property that is chosen from one molecule to the next.
  constructor(context) {
    this.context = context;
    this.tasks = siteTasksOf(context.model);
    const task = this.tasks.find(({ name }) => name === context.site) ?? this.tasks[0];
    const choice = this.tasks.length > 1 && element("select", { on: { change: () => this.choose(this.tasks[choice.selectedIndex]) } },
      ...this.tasks.map((one) => element("option", { selected: one === task }, `${titleOf(one)} (${one.level}s)`)));
    this.figure = element("div", { class: "drawing" });
    this.legend = element("figcaption", { "aria-live": "polite" });
    this.values = element("details");
    this.host = element("section", { class: "sites", "aria-labelledby": "sites-title", hidden: !this.tasks.length },
      element("div", { class: "group-head" }, element("h3", { id: "sites-title" }, "Atoms and bonds"),
        choice && element("label", {}, element("span", {}, "Property "), choice)),
      element("figure", {}, this.figure, this.legend), this.values);
    this.task = task;
  }

  choose(task) {
    this.context.site = task.name;
    this.task = task;
    this.show(this.smiles, this.signal);
  }

  async show(smiles, signal) {
    if (!this.task) return;
    Object.assign(this, { smiles, signal });
    const { task } = this;
    const { model, level } = this.context.options();
    this.legend.replaceChildren("Computing predictions\u2026");
    try {
      const found = await drawSites({ smiles, model, level, target: task.name }, signal);
      if (this.task === task) this.fill(found, level);
    } catch (error) {
      if (error.name === "AbortError" || this.task !== task) return;
      this.figure.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
      this.legend.replaceChildren();
      this.values.replaceChildren();
    }
  }

  fill({ svg, symbols, sites, predictions }, level) {
    const { task } = this;
    const words = `${titleOf(task)}${unitOf(task) && ` (${unitOf(task)})`}, predicted for each ${task.level}`;
    this.figure.replaceChildren(svg === null ? element("p", { class: "undrawn" }, "Not drawn: more than 200 atoms, or more than 5 s to lay them out")
      : picture(svg, `${words}, beside the ${task.level}s of ${this.smiles}`));
    const columns = columnsOf(task, predictions, level);
    const rows = sites.map((atoms, at) => [atoms, columns.map(([, texts]) => texts[at])]).filter(([atoms]) => atoms.length);
    const [values] = Object.values(predictions);
    const isUnbounded = predictions[`${task.name}_low`]?.some((end, at) => end === null && values[at] !== null);
    const limits = isUnbounded ? ` No ${percent(level)} interval: the model has too few held-out molecules for it; choose a lower level.` : "";
    const gaps = rows.some(([, [text]]) => text === "-") ? " Without a value: not predicted, such as an element that has no training label." : "";
    this.legend.replaceChildren(element("strong", {}, words), `. ${svg === null ? "" : legendOf(task)}${gaps}${limits}`);
    const names = task.level === "atom" ? ["Atom", "Symbol"] : ["Atoms", "Symbols"];
    const head = (title, attributes, unit = "") => element("th", { scope: "col", ...attributes }, title, unit && element("small", {}, unit));
    this.values.replaceChildren(element("summary", {}, `Table of ${plural(rows.length, task.level)}`),
      element("div", { class: "table", tabindex: 0, role: "region", "aria-label": words }, element("table", {},
        element("caption", {}, "Atoms are numbered from 0, in the order of the SMILES."),
        element("thead", {}, element("tr", {}, ...names.map((name) => head(name)),
          ...columns.map(([title, , unit]) => head(title, { class: "num" }, unit)))),
        element("tbody", {}, ...rows.map(([atoms, texts]) => element("tr", {},
          element("th", { scope: "row" }, atoms.join("-")), element("td", {}, atoms.map((atom) => symbols[atom]).join("-")),
          ...texts.map((text) => element("td", { class: "num" }, text))))))));
  }
}
