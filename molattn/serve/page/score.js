// A score of several properties: the weighted geometric mean of how desirable each value is, from 0 to 1.
import { desiredOf, groups, isNumber, quantity, titleOf, unitOf } from "./properties.js";
import { button, debounced, element, number } from "./shared.js";

const VERSION = 1; // of files
const HELP = "0 at the bad value and beyond, 1 at the good one, a ramp between them. The score is the geometric mean by "
  + "weight: one property at 0 makes it 0. For a range, add a property twice, once for each side.";

const keyOf = (model) => `molattn-score-${model.name}`;
const isScored = (task) => task.kind !== "multiclass"; // whose probabilities are of different classes
const isComplete = ({ bad, good, weight }) => [bad, good, weight].every(Number.isFinite) && bad !== good && weight > 0;

// A ramp to begin with: between the quartiles of the training labels, or as for the colors of probabilities.
function rampOf(task) {
  const quantiles = task.training?.quantiles;
  const [low, high] = !isNumber(task) ? [30, 70] : quantiles ? [25, 75].map((at) => Number(quantiles[at].toPrecision(2))) : [0, 1];
  return desiredOf(task) === "lower" ? { bad: high, good: low } : { bad: low, good: high };
}

export class Score {
  // `changed` is called when it has changed, `complain` with what is wrong with a file.
  constructor(context, changed, complain) {
    Object.assign(this, { context, changed, complain, all: [] });
    this.lines = element("div", { class: "parts" });
    this.file = element("input", { type: "file", accept: ".json", hidden: true, "aria-label": "File of a score", tabindex: -1,
      on: { change: () => this.load(this.file.files[0]) } });
    this.host = element("details", { class: "tool score" },
      element("summary", { title: "Rank molecules by several properties at once" }, "Score"),
      element("div", {}, element("p", { class: "note" }, HELP), this.lines,
        element("div", { class: "actions" },
          button("Add a property", () => this.add(), { title: "Add a property to the score" }),
          button("Save", () => this.save(), { title: "Save the score as a file, for others or for another browser" }),
          button("Load", () => this.file.click(), { title: "Load a score from a file" }), this.file,
          button("Clear", () => this.set([]), { title: "Remove all properties from the score" }))));
    this.host.addEventListener("toggle", () => this.host.open && !this.all.length && this.add());
  }

  // Properties with a complete ramp, which alone count.
  get parts() {
    return this.all.filter(isComplete);
  }

  get tasks() {
    return this.context.model.tasks.filter(isScored);
  }

  taskOf(part) {
    return this.tasks.find(({ name }) => name === part.property);
  }

  // What this browser has kept of a model.
  restore() {
    const kept = JSON.parse(localStorage.getItem(keyOf(this.context.model)) ?? "[]");
    this.all = kept.filter((part) => this.taskOf(part));
    this.host.hidden = !this.tasks.length;
    this.build();
  }

  // The score of a molecule; null without properties or where a prediction is missing.
  of(answer) {
    const { parts } = this;
    const each = parts.map((part) => this.desirability(part, answer));
    if (!parts.length || each.includes(null)) return null;
    if (each.includes(0)) return 0;
    const weights = parts.reduce((sum, { weight }) => sum + weight, 0);
    return Math.exp(parts.reduce((sum, { weight }, at) => sum + weight * Math.log(each[at]), 0) / weights);
  }

  desirability(part, answer) {
    const task = this.taskOf(part);
    const value = quantity(task, answer);
    if (value === null) return null;
    const share = ((isNumber(task) ? value : 100 * value) - part.bad) / (part.good - part.bad);
    return Math.min(1, Math.max(0, share));
  }

  // How each property enters the score of a molecule, in words.
  wordsOf(answer) {
    return this.parts.map((part) => `${titleOf(this.taskOf(part))} ${number(this.desirability(part, answer), 2)}`).join(", ");
  }

  add() {
    const { tasks } = this;
    const free = tasks.filter(({ name }) => !this.all.some((part) => part.property === name));
    const task = free.find(desiredOf) ?? free[0] ?? tasks[0];
    this.set([...this.all, { property: task.name, ...rampOf(task), weight: 1 }]);
    this.lines.lastElementChild.querySelector("select").focus();
  }

  // Replaces the properties of the score.
  set(all) {
    this.all = all;
    this.build();
    this.keep();
  }

  keep() {
    localStorage.setItem(keyOf(this.context.model), JSON.stringify(this.all));
    this.changed();
  }

  build() {
    this.lines.replaceChildren(...this.all.map((part, at) => this.line(part, at)));
  }

  line(part, at) {
    const task = this.taskOf(part);
    const title = `${titleOf(task)}, property ${at + 1} of the score`;
    const later = debounced(() => this.keep(), 150);
    const field = (name, help, attributes = {}) => {
      const made = element("input", { type: "number", step: "any", value: part[name], title: help, "aria-label": `${name}, ${title}`, ...attributes,
        on: { input: () => {
          part[name] = made.value === "" ? null : Number(made.value);
          line.classList.toggle("incomplete", !isComplete(part));
          later();
        } } });
      return element("label", {}, element("span", {}, name), made);
    };
    const choice = element("select", { "aria-label": `property ${at + 1} of the score`, on: { change: () => {
      const chosen = this.tasks.find(({ name }) => name === choice.value);
      this.set(this.all.with(at, { ...part, property: chosen.name, ...rampOf(chosen) }));
      this.lines.children[at].querySelector("select").focus();
    } } }, ...groups(this.tasks).map(([label, own]) => element("optgroup", { label }, ...own.map((one) =>
      element("option", { value: one.name, selected: one === task }, titleOf(one))))));
    const line = element("div", { class: `part ${isComplete(part) ? "" : "incomplete"}` }, choice,
      field("bad", "From this value on a molecule is worthless"), field("good", "From this value on a molecule could not be better"),
      element("span", { class: "unit" }, isNumber(task) ? unitOf(task) : "%"),
      field("weight", "How much the property counts", { min: 0 }),
      button("Remove", () => this.set(this.all.toSpliced(at, 1)), { class: "quiet", "aria-label": `Remove ${title}`, title: "Remove this property from the score" }));
    return line;
  }

  save() {
    const text = JSON.stringify({ molattn_score: VERSION, model: this.context.model.name, properties: this.all }, null, 2);
    this.context.save(new Blob([text], { type: "application/json" }), "score.json");
  }

  async load(file) {
    this.file.value = "";
    const { properties = [] } = await file.text().then(JSON.parse).catch(() => ({}));
    const own = [].concat(properties).filter((part) => part && this.taskOf(part));
    if (own.length) this.set(own.map(({ property, bad, good, weight }) => ({ property, bad, good, weight })));
    this.complain(own.length === properties.length && own.length ? ""
      : `${file.name}: got ${own.length} properties of ${this.context.model.name}, expected a file of Save`);
  }
}
