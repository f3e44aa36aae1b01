// One molecule: its structure, what is known near it, and each property; with a changed one beside it.
import { depict, explain, predict } from "./api.js";
import { announce, button, debounced, element, picture } from "./dom.js";
import { openEditor, smilesOf } from "./editor.js";
import { MINUS, number, percent, plural } from "./numbers.js";
import { barOf, change, className, groups, intervalText, isBeyond, isNumber, standing, thresholdText, titleOf, unitOf,
  valueText } from "./properties.js";

const NEAREST = 3;
const WORDS_OF_ERROR = "No prediction";

// Puts the drawing of a molecule into a place that has its size already.
export async function draw(host, smiles, width, height, { other = null, label = `Structure of ${smiles}` } = {}) {
  const asked = host.dataset.asked = `${smiles} ${other}`;
  const text = smiles ? await depict(smiles, width, height, other) : null;
  if (host.dataset.asked !== asked) return;
  host.replaceChildren(text === null ? element("p", { class: "undrawn" }, "not drawn") : picture(text, label));
}

export class MoleculeView {
  // `context` gives model, options and against (what values are compared with).
  constructor(host, context) {
    this.host = host;
    this.context = context;
  }

  close() {
    this.stop();
    this.host.classList.remove("comparing");
    this.row = null;
    this.host.replaceChildren();
  }

  stop() {
    this.abort?.abort();
    this.abort = new AbortController();
    this.editor?.destroy();
    this.editor = null;
  }

  async show(row) {
    this.stop();
    this.row = row;
    this.after = null;
    this.colored = null;
    const { answer } = row;
    this.build();
    if (answer.error !== null || answer.neighbors?.length || !this.context.model.has_neighbors) return;
    const { signal } = this.abort;
    try {
      answer.neighbors = (await predict(row, { ...this.context.options(), neighbors: NEAREST }, signal)).neighbors;
      if (this.row === row) this.showNearest();
    } catch (error) {
      if (error.name !== "AbortError") this.nearest.replaceChildren();
    }
  }

  refresh() {
    if (this.row?.answer.error === null) this.showProperties();
  }

  get smiles() {
    return this.row.answer.smiles || this.row.smiles;
  }

  build() {
    const { row } = this;
    const { answer } = row;
    const heading = element("h2", { tabindex: -1, id: "molecule-name" }, row.name || `Molecule ${row.place}`);
    if (answer.error !== null) {
      this.host.replaceChildren(element("div", { class: "failed" }, heading,
        element("p", {}, element("strong", {}, `${WORDS_OF_ERROR}: `), answer.message || answer.error),
        element("p", { class: "soft" }, "Reason code ", element("code", {}, answer.error)),
        element("pre", {}, this.smiles || "(empty)")));
      return;
    }
    this.figure = element("div", { class: "drawing" });
    draw(this.figure, this.smiles, 360, 260);
    this.legend = element("div", { class: "below-drawing" });
    this.nearest = element("div", { class: "nearest" });
    this.properties = element("div", { class: "property-groups" });
    this.pair = element("section", { class: "what-if", hidden: true, "aria-label": "What if" });
    this.whatIf = button("What if I change it?", () => this.toggleWhatIf(), { "aria-expanded": "false" });
    const copied = button("Copy SMILES", () => this.copy(copied), { class: "quiet" });
    const standardized = answer.standardized_smiles
      ? element("p", { class: "note" }, "Predicted as ", element("code", {}, answer.standardized_smiles)) : null;
    this.host.replaceChildren(...[
      element("div", { class: "molecule-head" }, heading, element("code", { class: "smiles" }, this.smiles)),
      this.domain = element("p", { class: "domain", hidden: true }),
      this.pair,
      element("div", { class: "molecule-body" },
        element("div", { class: "side" },
          element("div", { class: "stays" },
            element("figure", { class: "structure" }, this.figure, this.legend), standardized,
            element("div", { class: "actions" }, this.whatIf, copied)),
          this.nearest),
        this.properties),
    ].filter(Boolean));
    this.showDomain();
    this.showProperties();
    this.showNearest();
  }

  async copy(pressed) {
    await navigator.clipboard.writeText(this.smiles);
    pressed.textContent = "Copied";
    announce("SMILES copied");
    setTimeout(() => { pressed.textContent = "Copy SMILES"; }, 2000);
  }

  showDomain() {
    const answer = this.after?.answer ?? this.answer;
    const { in_domain: inside, training_similarity: similarity } = answer;
    const { tasks } = this.context.model;
    const beyond = tasks.filter((task) => isBeyond(task, answer)).length;
    const words = [inside ? `Like ${beyond ? "some" : "the"} training molecules.` : "Beyond what the model knows.",
      similarity === null ? "" : ` Its nearest training molecule has a similarity of ${number(similarity, 2)} (1 is the same).`];
    if (!inside) {
      words.push(" The model has learned from nothing much like it: its values may be further off than their intervals say.");
    } else if (beyond) {
      words.push(` Marked \u201cbeyond\u201d: ${beyond} of ${tasks.length} properties, measured of no training molecule like it.`);
    }
    const [strong, ...others] = words;
    this.domain.hidden = inside === null || inside === undefined;
    this.domain.className = `domain ${inside ? "inside" : "beyond"}`;
    this.domain.replaceChildren(this.after ? "The changed molecule: " : "", element("strong", {}, strong), ...others);
  }

  showNearest() {
    const { neighbors } = this.row.answer;
    if (!this.context.model.has_neighbors) return;
    const list = !neighbors?.length
      ? Array.from({ length: NEAREST }, () => element("li", { class: "neighbor waiting" }))
      : neighbors.slice(0, NEAREST).map((one) => this.neighbor(one));
    this.nearest.replaceChildren(element("h3", {}, "Nearest training molecules"), element("ul", {}, ...list));
  }

  neighbor({ smiles, similarity, labels }) {
    const figure = element("div", { class: "drawing small" });
    draw(figure, smiles, 200, 130);
    const measured = this.context.model.tasks.filter((task) => labels[task.name] !== null && labels[task.name] !== undefined);
    const line = (task) => element("div", {}, element("dt", {}, titleOf(task)), element("dd", {},
      ...(isNumber(task) ? [element("span", {}, number(Number(labels[task.name]))), " ", element("span", {}, unitOf(task))]
        : [className(task, String(labels[task.name]))])));
    const facts = (tasks) => element("dl", {}, ...tasks.map(line));
    return element("li", { class: "neighbor" }, figure,
      element("p", { class: "similarity" }, similarity >= 0.9995 ? element("strong", {}, "the same, by fingerprint")
        : `similarity ${number(similarity, 2)}`),
      facts(measured.slice(0, 4)),
      measured.length > 4 ? element("details", { class: "more" },
        element("summary", {}, `${plural(measured.length - 4, "more label")}`), facts(measured.slice(4))) : null);
  }

  showProperties() {
    const open = new Set([...this.properties.querySelectorAll("[aria-expanded=true]")].map((one) => one.id));
    const level = percent(this.answer.level ?? this.context.options().level);
    const named = groups(this.context.model.tasks);
    this.properties.classList.toggle("changed", this.after !== null);
    this.properties.replaceChildren(...named.map(([name, tasks], place) =>
      element("section", { "aria-labelledby": `group-${place}` },
        element("div", { class: "group-head" }, element("h3", { id: `group-${place}` }, name),
          place ? null : this.key(level)),
        element("ul", { class: "properties" }, ...tasks.map((task, at) =>
          this.property(task, `about-${place}-${at}`, open, level))))));
  }

  get answer() {
    return this.row.answer;
  }

  // What the marks of the bars mean.
  key(level) {
    const numbers = this.context.model.tasks.some(isNumber);
    const classes = this.context.model.tasks.some((task) => task.training?.class_counts);
    const dot = (name) => element("i", { class: name });
    return element("p", { class: "key", "aria-hidden": "true" },
      element("span", {}, dot("here"), "predicted"),
      numbers ? element("span", {}, dot("band"), `${level} interval`) : null,
      this.after ? element("span", {}, dot("before"), "before") : null,
      numbers ? element("span", {}, dot("ticks"), "quarters of the molecules") : null,
      numbers && classes ? element("span", {}, dot("limit"), "limit, or share in training") : null);
  }

  property(task, id, open, level) {
    const after = this.after?.answer ?? null;
    const shown = after ?? this.answer;
    const { main, unit, word } = valueText(task, shown);
    const against = this.context.against();
    const about = element("div", { class: "about", id: `${id}-text`, hidden: !open.has(id) });
    if (open.has(id)) about.append(...this.about(task));
    const title = element("button", { type: "button", class: "title", id, "aria-expanded": open.has(id),
      "aria-controls": `${id}-text`, on: { click: () => this.toggleAbout(title, about, task) } }, titleOf(task));
    const hidden = (text) => element("span", { class: "hidden" }, text);
    const interval = intervalText(task, shown);
    const place = standing(task, shown, against);
    const moved = after ? change(task, this.answer, after, against) : null;
    return element("li", { class: "property" },
      element("div", { class: "name" }, title),
      element("div", { class: "value" },
        moved ? element("span", { class: "old" }, hidden("before "), valueText(task, this.answer).main, hidden(", now ")) : null,
        element("b", {}, main), unit ? element("span", { class: "unit" }, unit) : null,
        word && !moved ? element("span", { class: "word" }, word) : null,
        shown.in_domain && isBeyond(task, shown) ? element("span", { class: "tag" }, "beyond") : null,
        moved ? element("span", { class: `moved ${moved.text === "no change" ? "" : "yes"}` }, moved.text) : null),
      element("div", { class: "where" }, barOf(task, shown, against, after && this.answer),
        element("div", { class: "ends" },
          element("span", {}, interval && hidden(`${level} interval: `), interval),
          element("span", {}, place.text, place.text && hidden(place.of)))),
      button("Color", (event) => this.color(task, event.currentTarget), {
        class: "quiet color", "aria-label": `Color atoms by ${titleOf(task)}`, "aria-pressed": this.colored === task,
      }),
      about);
  }

  toggleAbout(title, about, task) {
    const open = about.hidden;
    if (open && !about.children.length) about.append(...this.about(task));
    about.hidden = !open;
    title.setAttribute("aria-expanded", open);
  }

  about(task) {
    const { card } = task;
    const parts = [];
    if (card?.description) parts.push(element("p", {}, card.description));
    const given = this.answer.predictions?.[task.name];
    const similarity = given?.training_similarity;
    const facts = [
      ["Column", task.name],
      similarity !== null && similarity !== undefined && ["Nearest training molecule with this label",
        `similarity ${number(similarity, 2)}${isBeyond(task, this.answer) ? ": beyond what the model knows of this property" : ""}`],
      task.kind === "multiclass" && given && ["Probabilities",
        Object.entries(given.probabilities).map(([name, share]) => `${name} ${percent(share)}`).join(", ")],
      card?.assay && ["Measured as", card.assay],
      card?.direction && ["Wanted", card.direction],
      card?.thresholds?.length && ["Limits", card.thresholds.map((one) => thresholdText(one, isNumber(task) ? unitOf(task) : "")).join("; ")],
      card?.source && ["Data", [card.source, card.rows && plural(card.rows, "row")].filter(Boolean).join(", ")],
      card?.license && ["License", card.license],
      !card && task.training?.count && ["Data", plural(task.training.count, "training molecule")],
      card?.scores && ["Scores in cross-validation", card.scores],
      card?.coverage !== null && card?.coverage !== undefined && ["Intervals hold",
        `${percent(card.coverage)} of test values`],
    ].filter(Boolean);
    parts.push(element("dl", {}, ...facts.map(([name, text]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, text)))));
    return parts;
  }

  // Atoms colored by their part in a prediction, in place of the plain structure.
  async color(task, pressed) {
    const again = this.colored === task;
    this.plain();
    if (again) return;
    this.colored = task;
    pressed.setAttribute("aria-pressed", "true");
    await this.explained(task, false);
    this.figure.closest("figure").scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  plain() {
    this.colored = null;
    for (const one of this.properties.querySelectorAll(".color[aria-pressed=true]")) one.setAttribute("aria-pressed", "false");
    this.legend.replaceChildren();
    this.figure.classList.remove("colored");
    draw(this.figure, this.smiles, 360, 260);
  }

  async explained(task, check) {
    const { signal } = this.abort;
    const says = element("p", { class: "note", role: "status" },
      check ? "Testing the method on other molecules; this may take a minute\u2026" : "Computing each atom's part\u2026");
    if (check) this.legend.append(says);
    else this.legend.replaceChildren(says);
    try {
      const { model } = this.context;
      const { partner, features } = this.row;
      const found = await explain({ smiles: this.smiles, model: model.name, task: task.name, check,
        ...(partner === null ? {} : { partner }), ...(Object.keys(features).length ? { features } : {}) }, signal);
      if (this.colored !== task) return;
      this.figure.dataset.asked = "";
      this.figure.classList.add("colored");
      this.figure.replaceChildren(picture(found.svg, `Atoms colored by their part in ${titleOf(task)}`, { recolor: false }));
      this.legend.replaceChildren(element("div", {},
        element("p", {}, element("strong", {}, titleOf(task)),
          found.signed ? ". Orange atoms raise the predicted value, blue atoms lower it."
            : ". The stronger the color, the more an atom matters."),
        // Without the value and the caption, which are beside it, and the last line, with numbers of atoms, which are not drawn.
        ...found.text.slice(2, -1).map((line) => element("p", { class: "note" }, line.replace(/(?<![\w)])-(?=\d)/g, MINUS))),
        found.check ? element("p", { class: "checked" }, element("strong", {}, "Test of the method: "), found.check) : null,
        element("div", { class: "actions" },
          found.check || model.partner !== null || model.features.length ? null : button("Test the method", () => this.explained(task, true), { class: "quiet" }),
          button("Plain structure", () => this.plain(), { class: "quiet" }))));
      announce(`Atoms colored by ${titleOf(task)}`);
    } catch (error) {
      if (error.name === "AbortError" || this.colored !== task) return;
      this.legend.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  toggleWhatIf() {
    const opens = this.pair.hidden;
    this.whatIf.setAttribute("aria-expanded", opens);
    this.whatIf.textContent = opens ? "End what-if" : "What if I change it?";
    this.pair.hidden = !opens;
    this.host.classList.toggle("comparing", opens);
    if (this.colored) this.plain();
    if (opens) this.openPair();
    else this.closePair();
  }

  closePair() {
    this.trial?.abort();
    this.editor?.destroy();
    this.editor = null;
    this.pair.replaceChildren();
    this.showAfter(null);
  }

  // The values of the changed molecule, or again those of the molecule itself.
  showAfter(row) {
    this.after = row;
    this.showDomain();
    this.showProperties();
  }

  async openPair() {
    const canvas = element("div", { class: "editor" });
    const field = element("input", { id: "changed-smiles", type: "text", value: this.smiles, spellcheck: "false",
      autocomplete: "off", on: { input: debounced(() => this.changeTo(field.value.trim(), true), 350) } });
    this.figures = [element("div", { class: "drawing" }), element("div", { class: "drawing" })];
    this.said = element("p", { class: "note said", role: "status" }, "Change the structure: values below move with it.");
    this.field = field;
    this.pair.replaceChildren(
      element("div", { class: "pair-editor" }, canvas,
        element("label", { for: "changed-smiles" }, "Changed SMILES"), field, this.said),
      element("figure", {}, this.figures[0], element("figcaption", {}, "before")),
      element("figure", {}, this.figures[1], element("figcaption", {}, "after; atoms that differ are marked")));
    draw(this.figures[0], this.smiles, 300, 220);
    draw(this.figures[1], this.smiles, 300, 220);
    field.focus();
    const changed = debounced(() => {
      field.value = smilesOf(this.editor);
      this.changeTo(field.value, false);
    }, 350);
    const editor = await openEditor(canvas, this.smiles, changed);
    if (this.pair.hidden || !canvas.isConnected) editor.destroy();
    else this.editor = editor;
  }

  async changeTo(smiles, typed) {
    this.trial?.abort();
    this.trial = new AbortController();
    const { signal } = this.trial;
    const row = { ...this.row, smiles, answer: null };
    try {
      row.answer = await predict(row, this.context.options(), signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      row.answer = { error: error.code, message: error.message };
    }
    if (this.pair.hidden) return;
    if (typed) this.editor?.show(smiles);
    if (row.answer.error !== null) {
      this.showAfter(null);
      draw(this.figures[0], this.smiles, 300, 220);
      draw(this.figures[1], null, 300, 220);
      this.said.textContent = `${WORDS_OF_ERROR}: ${row.answer.message || row.answer.error}`;
      return;
    }
    this.showAfter(row);
    this.drawPair(row);
    this.said.textContent = this.largest();
  }

  // The structures at once, then with marks: to find the atoms that differ may take a second.
  async drawPair(row) {
    const [before, after] = this.figures;
    await draw(after, row.smiles, 300, 220);
    if (this.after !== row) return;
    draw(before, this.smiles, 300, 220, { other: row.smiles, label: "Structure before the change" });
    draw(after, row.smiles, 300, 220, { other: this.smiles, label: "Structure after the change" });
  }

  moves() {
    const against = this.context.against();
    return this.context.model.tasks.map((task) => ({ task, ...change(task, this.answer, this.after.answer, against) }))
      .filter(({ size }) => Math.abs(size) >= 1).sort((a, b) => Math.abs(b.size) - Math.abs(a.size));
  }

  largest() {
    const most = this.moves().slice(0, 3).map(({ task, text }) => `${titleOf(task)} ${text}`);
    return most.length ? `Largest changes: ${most.join("; ")}.` : "No value changes much.";
  }
}
