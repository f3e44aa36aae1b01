// One molecule: its structure, what is known near it, and each property; with a changed one beside it.
import { depict, explain, predict } from "./api.js";
import { openEditor } from "./editor.js";
import { PhyschemCard } from "./physchem.js";
import { profileOf } from "./profile.js";
import { barOf, change, className, confidenceTag, confidenceText, grades, groups, intervalText, isMostlyLow, isNumber, measuredTag, parentTag,
  standing, thresholdText, titleOf, unitOf, valueText, verdictOf } from "./properties.js";
import { announce, button, debounced, element, number, percent, picture, plural, signed } from "./shared.js";
import { SitesCard } from "./sites.js";

const NEAREST = 3;
const hidden = (...text) => element("span", { class: "hidden" }, ...text);
const note = (...text) => element("p", { class: "note" }, ...text);

// Puts the drawing of a molecule into a place that has its size already.
export async function draw(host, smiles, width, height, { other = null, atoms = [], label = `Structure of ${smiles}` } = {}) {
  const asked = host.dataset.asked = `${smiles} ${other} ${atoms}`;
  const svg = smiles ? await depict(smiles, width, height, other, atoms) : null;
  if (host.dataset.asked !== asked) return;
  host.replaceChildren(svg === null ? element("p", { class: "undrawn" }, "not drawn") : picture(svg, label));
}

const facts = (pairs) => element("dl", {}, ...pairs.map(([name, ...text]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, ...text))));

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

  show(row) {
    this.stop();
    const { answer } = row;
    Object.assign(this, { row, answer, smiles: answer.smiles || row.smiles, after: null, colored: null });
    const heading = element("h2", { tabindex: -1, id: "molecule-name" }, row.name || `Row ${row.place}`);
    if (answer.error !== null) this.showFailed(heading);
    else this.build(heading);
    if (answer.error === null && !answer.neighbors?.length && this.context.model.has_neighbors) this.findNearest(row);
  }

  async findNearest(row) {
    try {
      const options = { ...this.context.options(), neighbors: NEAREST };
      row.answer.neighbors = (await predict(row, options, this.abort.signal)).neighbors;
      if (this.row === row) this.showNearest();
    } catch (error) {
      if (error.name !== "AbortError") this.nearest.replaceChildren(note(`Nearest molecules: ${error.message}`));
    }
  }

  refresh() {
    if (this.row?.answer.error === null) this.showProperties();
  }

  showFailed(heading) {
    this.host.replaceChildren(element("div", { class: "failed" }, heading,
      element("p", {}, element("strong", {}, "No prediction: "), this.answer.message || this.answer.error),
      element("p", { class: "soft" }, "Reason code ", element("code", {}, this.answer.error)),
      element("pre", {}, this.smiles || "(empty)")));
  }

  build(heading) {
    const place = (name, attributes = {}) => element("div", { class: name, ...attributes });
    this.figure = place("drawing");
    this.legend = place("below-drawing");
    this.nearest = place("nearest");
    this.properties = place("property-groups");
    this.profile = place("profile-of");
    this.physchem = new PhyschemCard(this.context, (alert) => this.markAlert(alert));
    this.sites = new SitesCard(this.context);
    this.confidence = element("p", { class: "confidence", hidden: true });
    this.scored = element("p", { class: "note scored" });
    this.pair = element("section", { class: "what-if", hidden: true, "aria-label": "What if" });
    this.whatIf = button("What if I change it?", () => this.toggleWhatIf(), { "aria-expanded": "false",
      title: "Change the structure and see which values move" });
    const standardized = this.answer.parent ?? this.answer.standardized_smiles;
    this.host.replaceChildren(
      element("div", { class: "molecule-head" }, heading, element("code", { class: "smiles" }, this.smiles)),
      this.confidence, this.scored, this.pair,
      element("div", { class: "molecule-body" },
        element("div", { class: "side" },
          element("div", { class: "stays" },
            element("figure", { class: "structure" }, this.figure, this.legend),
            standardized && note("Predicted as ", element("code", {}, standardized)),
            this.context.model.tasks.length > 0 && element("div", { class: "actions" }, this.whatIf)),
          this.profile, this.nearest),
        element("div", { class: "values" }, this.sites.host, this.physchem.host, this.properties)));
    draw(this.figure, this.smiles, 360, 260);
    this.showConfidence();
    this.showProperties();
    this.showNearest();
    this.physchem.show(this.smiles, this.abort.signal);
    this.sites.show(this.smiles, this.abort.signal);
  }

  // The atoms of a structural alert in the drawing, or none.
  markAlert(alert) {
    this.plain();
    const figure = this.pair.hidden ? this.figure : this.figures[1];
    if (alert === null) {
      draw(figure, this.after?.smiles ?? this.smiles, 360, 260);
      return;
    }
    const { smiles, atoms, words } = alert;
    draw(figure, smiles, 360, 260, { atoms, label: `Structure with ${words} marked` });
    this.legend.replaceChildren(note("Marked: ", element("strong", {}, words), "."));
  }

  showConfidence() {
    const answer = this.after ?? this.answer;
    const found = Object.entries(grades(answer)).filter(([, size]) => size);
    const { training_similarity: similarity } = answer;
    this.confidence.hidden = !found.length;
    const most = isMostlyLow(answer) ? "low" : [...found].sort(([, a], [, b]) => b - a)[0]?.[0];
    this.confidence.className = `confidence ${most}`;
    this.confidence.replaceChildren(this.after ? "The changed molecule: " : "",
      element("strong", {}, `Confidence: ${found.map(([grade, size]) => `${size} ${grade}`).join(", ")}.`),
      similarity == null ? "" : ` Its nearest training molecule has a similarity of ${number(similarity, 2)} (1 is the same).`);
  }

  showNearest() {
    if (!this.context.model.has_neighbors) return;
    const found = this.answer.neighbors?.length ? this.answer.neighbors : Array(NEAREST).fill(null);
    const items = found.map((one) => (one ? this.neighbor(one) : element("li", { class: "neighbor waiting" })));
    this.nearest.replaceChildren(element("h3", {}, "Nearest training molecules"), element("ul", {}, ...items));
  }

  neighbor({ smiles, similarity, labels }) {
    const figure = element("div", { class: "drawing small" });
    draw(figure, smiles, 200, 130);
    const label = (task) => (isNumber(task)
      ? [element("span", {}, number(Number(labels[task.name]))), " ", element("span", {}, unitOf(task))]
      : [className(task, String(labels[task.name]))]);
    const measured = this.context.model.tasks.filter((task) => labels[task.name] != null)
      .map((task) => [titleOf(task), ...label(task)]);
    const [first, others] = [measured.slice(0, 4), measured.slice(4)];
    return element("li", { class: "neighbor" }, figure,
      element("p", { class: "similarity" }, similarity >= 0.9995 ? element("strong", {}, "the same, by fingerprint")
        : `similarity ${number(similarity, 2)}`),
      facts(first),
      others.length > 0 && element("details", { class: "more" },
        element("summary", {}, plural(others.length, "more label")), facts(others)));
  }

  showProperties() {
    const open = new Set([...this.properties.querySelectorAll("[aria-expanded=true]")].map((one) => one.id));
    const level = percent(this.context.options().level);
    const score = this.context.score.of(this.after ?? this.answer);
    this.scored.replaceChildren(...(score === null ? [] : [element("strong", {}, `Score ${number(score, 2)}`),
      ` of 1, by ${this.context.score.wordsOf(this.after ?? this.answer)}.`]));
    this.profile.replaceChildren(profileOf(this.context.model.tasks, this.after ?? this.answer, this.context.against()) ?? "");
    this.properties.replaceChildren(...groups(this.context.model.tasks).map(([name, tasks], place) =>
      element("section", { "aria-labelledby": `group-${place}` },
        element("div", { class: "group-head" }, element("h3", { id: `group-${place}` }, name), !place && this.key(level)),
        element("ul", { class: "properties" }, ...tasks.map((task, at) =>
          this.property(task, `about-${place}-${at}`, open, level))))));
  }

  // What the marks of the bars mean.
  key(level) {
    const { tasks } = this.context.model;
    const numbers = tasks.some(isNumber);
    const classes = tasks.some((task) => task.training?.class_counts);
    const entry = (mark, text) => element("span", {}, element("i", { class: mark }), text);
    return element("p", { class: "key", "aria-hidden": "true" }, ...[
      entry("here", "predicted"),
      tasks.some((task) => task.card?.direction) && [["good", "desired"], ["poor", "not desired"]]
        .map(([mark, text]) => entry(`verdict ${mark}`, text)),
      numbers && entry("band", `${level} interval`),
      this.after && entry("before", "before"),
      numbers && entry("ticks", "quartiles"),
      numbers && classes && entry("limit", "limit, or fraction in training")].flat());
  }

  property(task, id, open, level) {
    const { after } = this;
    const shown = after ?? this.answer;
    const against = this.context.against();
    const { main, unit, word } = valueText(task, shown);
    const interval = isNumber(task) && intervalText(task, shown);
    const place = standing(task, shown, against);
    const moved = after && this.moved(task);
    const { verdict, why } = verdictOf(task, shown);
    const about = element("div", { class: "about", id: `${id}-text`, hidden: !open.has(id) }, ...this.about(task));
    const title = button(titleOf(task), () => {
      about.hidden = !about.hidden;
      title.setAttribute("aria-expanded", !about.hidden);
    }, { class: "title", id, title: task.card?.description, "aria-expanded": open.has(id), "aria-controls": about.id });
    return element("li", { class: "property" },
      element("div", { class: "name" }, title),
      element("div", { class: "value" },
        moved && element("span", { class: "old" }, hidden("before "), valueText(task, this.answer).main, hidden(", now ")),
        element("b", { class: verdict, title: verdict && why }, main), verdict && hidden(` (${verdict})`), unit && element("span", { class: "unit" }, unit),
        word && !moved && element("span", { class: "word" }, word),
        confidenceTag(task, shown, " confidence"), measuredTag(task, shown), parentTag(task, shown),
        moved && element("span", { class: `moved ${moved.text === "no change" ? "" : "yes"}` }, moved.text),
        moved?.range && element("span", { class: "word" }, moved.range)),
      element("div", { class: "where" }, barOf(task, shown, against, after && this.answer),
        element("div", { class: "ends" },
          element("span", {}, interval && hidden(`${level} interval: `), interval),
          element("span", {}, place.text, place.text && hidden(place.of)))),
      button("Color", (event) => this.color(task, event.currentTarget), {
        class: "quiet color", "aria-label": `Color atoms by ${titleOf(task)}`, title: "Color the atoms by their contribution to this value", "aria-pressed": this.colored === task,
      }),
      about);
  }

  about(task) {
    const card = task.card ?? {};
    const given = this.answer.predictions[task.name];
    const similarity = given?.training_similarity;
    const trained = !task.card && task.training?.count;
    const limits = (card.thresholds ?? []).map((one) => thresholdText(one, isNumber(task) ? unitOf(task) : ""));
    const probabilities = task.kind === "multiclass" && given
      && Object.entries(given.probabilities).map(([name, share]) => `${name} ${percent(share)}`).join(", ");
    const texts = {
      "Column": task.name,
      "Nearest training molecule with this label": similarity != null && `similarity ${number(similarity, 2)}`,
      "Confidence": given && confidenceText(task, this.answer).replace(" confidence", ""),
      "Confidence rests on": given?.confidence_reason,
      "Molecule": { written: "as written; the value of its parent stands beside it", parent: "its parent" }[card.form],
      "Probabilities": probabilities,
      "Measured as": card.assay,
      "Not in the data": card.limitations,
      "Preferred": card.direction,
      "Limits": limits.join("; "),
      "Data": card.source ? [card.source, card.rows && plural(card.rows, "row")].filter(Boolean).join(", ")
        : trained && plural(trained, "training molecule"),
      "License": card.license,
      "Scores in cross-validation": card.scores,
      "Intervals hold": card.coverage != null && `${percent(card.coverage)} of test values`,
    };
    return [card.description && element("p", {}, card.description),
      facts(Object.entries(texts).filter(([, text]) => text))];
  }

  // Atoms colored by their contribution to a prediction, in place of the plain structure.
  async color(task, pressed) {
    const again = this.colored === task;
    this.plain();
    if (again) return;
    this.colored = task;
    pressed.setAttribute("aria-pressed", "true");
    await this.explain(task);
    this.figure.closest("figure").scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  plain() {
    this.colored = null;
    this.physchem.release();
    for (const one of this.properties.querySelectorAll(".color[aria-pressed=true]")) one.setAttribute("aria-pressed", "false");
    this.legend.replaceChildren();
    this.figure.classList.remove("colored");
    draw(this.figure, this.smiles, 360, 260);
  }

  async explain(task) {
    this.legend.replaceChildren(element("p", { class: "note", role: "status" }, "Computing contributions\u2026"));
    const { model } = this.context;
    const { partner, features } = this.row;
    const query = { smiles: this.smiles, model: model.name, task: task.name, as_given: this.context.options().as_given };
    if (partner !== null) query.partner = partner;
    if (Object.keys(features).length) query.features = features;
    try {
      const found = await explain(query, this.abort.signal);
      if (this.colored === task) this.showExplanation(task, found);
    } catch (error) {
      if (error.name === "AbortError" || this.colored !== task) return;
      this.legend.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  showExplanation(task, { svg, signed, unit, baseline, residual, adds_up }) {
    const miss = adds_up === false && `The scores miss the prediction by ${number(residual)} ${unit}.`;
    this.figure.dataset.asked = "";
    this.figure.classList.add("colored");
    this.figure.replaceChildren(picture(svg, `Atoms colored by their contribution to ${titleOf(task)}`));
    this.legend.replaceChildren(
      element("p", {}, element("strong", {}, titleOf(task)), signed
        ? ". Orange atoms raise the predicted value, blue atoms lower it." : ". The stronger the color, the more an atom matters."),
      baseline === null ? "" : note(`baseline: ${number(baseline)} ${unit}`),
      miss ? note(miss) : "",
      element("div", { class: "actions" },
        button("Plain structure", () => this.plain(), { class: "quiet" })));
    announce(`Atoms colored by ${titleOf(task)}`);
  }

  toggleWhatIf() {
    const opens = this.pair.hidden;
    this.whatIf.setAttribute("aria-expanded", opens);
    this.whatIf.textContent = opens ? "End what-if" : "What if I change it?";
    this.pair.hidden = !opens;
    this.host.classList.toggle("comparing", opens);
    this.plain();
    if (opens) this.openPair();
    else {
      this.trial?.abort();
      this.editor?.destroy();
      this.editor = null;
      this.pair.replaceChildren();
      this.showAfter(null);
    }
  }

  // The values of the changed molecule, or again those of the molecule itself.
  showAfter(answer) {
    this.after = answer;
    this.physchem.show(answer?.smiles ?? this.smiles, this.abort.signal);
    this.showConfidence();
    this.showProperties();
  }

  async openPair() {
    const later = debounced((smiles, typed) => this.changeTo(smiles, typed), 350);
    const canvas = element("div", { class: "editor" });
    const field = element("input", { id: "changed-smiles", type: "text", value: this.smiles, spellcheck: "false",
      autocomplete: "off", on: { input: () => later(field.value.trim(), true) } });
    this.figures = [element("div", { class: "drawing" }), element("div", { class: "drawing" })];
    this.said = element("p", { class: "note said", role: "status" }, "Change the structure: values below move with it.");
    const captions = ["before", "after; atoms that differ are marked"];
    this.pair.replaceChildren(
      element("div", { class: "pair-editor" }, canvas,
        element("label", { for: "changed-smiles" }, "Changed SMILES"), field, this.said),
      ...captions.map((text, at) => element("figure", {}, this.figures[at], element("figcaption", {}, text))));
    for (const figure of this.figures) draw(figure, this.smiles, 300, 220);
    field.focus();
    const editor = await openEditor(canvas, this.smiles, (smiles) => {
      field.value = smiles;
      later(smiles, false);
    });
    if (canvas.isConnected) this.editor = editor;
    else editor.destroy();
  }

  async changeTo(smiles, typed) {
    this.trial?.abort();
    const { signal } = this.trial = new AbortController();
    let answer;
    try {
      const options = { ...this.context.options(), difference_from: [this.smiles] };
      answer = await predict({ ...this.row, smiles }, options, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      answer = { error: error.code, message: error.message };
    }
    if (this.pair.hidden || signal.aborted) return;
    if (typed) this.editor?.show(smiles);
    const isPredicted = answer.error === null;
    this.showAfter(isPredicted ? answer : null);
    this.said.textContent = isPredicted ? this.largestChanges() : `No prediction: ${answer.message || answer.error}`;
    // The structure at once, then with marks: to find the atoms that differ may take a second.
    const [before, after] = this.figures;
    if (!isPredicted) draw(before, this.smiles, 300, 220);
    await draw(after, isPredicted ? smiles : null, 300, 220);
    if (!isPredicted || this.after !== answer) return;
    draw(before, this.smiles, 300, 220, { other: smiles, label: "Structure before the change" });
    draw(after, smiles, 300, 220, { other: this.smiles, label: "Structure after the change" });
  }

  // How a value moved, with the interval of the difference or the ratio: "90% +0.9 to +2.1".
  moved(task) {
    const moved = change(task, this.answer, this.after, this.context.against());
    const { kind, value, low, high } = this.after.predictions[task.name].difference ?? {};
    const words = kind === "ratio" ? number : signed;
    if (kind === "ratio" && moved.text !== "no change") moved.text = `${number(value)} times`;
    const range = low == null ? "" : `${percent(this.context.options().level)} ${words(low)} to ${words(high)}`;
    return { ...moved, range };
  }

  largestChanges() {
    const most = this.context.model.tasks.map((task) => [task, this.moved(task)])
      .filter(([, { size }]) => Math.abs(size) >= 1).sort(([, a], [, b]) => Math.abs(b.size) - Math.abs(a.size));
    const words = most.slice(0, 3).map(([task, { text, range }]) => `${titleOf(task)} ${text}${range && `, ${range}`}`);
    return words.length ? `Largest changes: ${words.join("; ")}.` : "No value changes much.";
  }
}
