// Physicochemical properties and structural alerts of a molecule, beside what the model predicts.
import { physchem } from "./api.js";
import { button, element, number } from "./shared.js";

const CATALOGS = { PAINS: "PAINS", BRENK: "Brenk" };
const wordsOf = (name) => name.replace(/\(\d+\)$/, "").replaceAll("_", " ");

export class PhyschemCard {
  // `mark` is called with the SMILES and the atoms of an alert, or with null to draw it plain.
  constructor(context, mark) {
    this.context = context;
    this.mark = mark;
    this.values = element("dl", { class: "tiles" });
    this.alerts = element("div", { class: "alerts" });
    this.host = element("section", { class: "physchem", "aria-label": "Calculated from the structure" },
      element("h3", {}, "Calculated from the structure"), this.values, this.alerts);
  }

  async show(smiles, signal) {
    this.asked = smiles;
    const { model, as_given } = this.context.options();
    try {
      const found = await physchem({ smiles, model, as_given }, signal);
      if (this.asked === smiles) this.fill(found);
    } catch (error) {
      if (error.name === "AbortError" || this.asked !== smiles) return;
      this.values.replaceChildren();
      this.alerts.replaceChildren(element("p", { class: "note" }, error.message));
    }
  }

  fill({ smiles, properties, alerts }) {
    this.values.replaceChildren(...properties.map(({ title, unit, value, most, source }) => {
      const isOver = most !== null && value > most;
      const text = Number.isInteger(value) ? String(value) : number(value, value >= 100 ? 4 : 3);
      return element("div", { title: most === null ? source : `at most ${most}; ${source}`, class: isOver && "above" },
        element("dt", {}, title), element("dd", {}, text, unit && element("span", { class: "unit" }, ` ${unit}`),
          isOver && element("span", { class: "hidden" }, `, above ${most}`)));
    }));
    this.alerts.replaceChildren(...Object.entries(CATALOGS).map(([catalog, title]) => {
      const own = alerts.filter((one) => one.catalog === catalog);
      return element("p", {}, element("span", { class: "soft" }, `${title} alerts`),
        ...(own.length ? own.map((one) => this.alert(smiles, one)) : [element("span", {}, "none")]));
    }));
  }

  alert(smiles, { name, atoms }) {
    const words = wordsOf(name);
    return button(words, ({ currentTarget: pressed }) => {
      const isOn = pressed.getAttribute("aria-pressed") === "true";
      this.mark(isOn ? null : { smiles, atoms, words });
      pressed.setAttribute("aria-pressed", !isOn);
    }, { class: "quiet alert", "aria-pressed": "false", title: "Mark its atoms in the structure" });
  }

  // No alert is marked any more.
  release() {
    for (const one of this.alerts.querySelectorAll("[aria-pressed=true]")) one.setAttribute("aria-pressed", "false");
  }
}
