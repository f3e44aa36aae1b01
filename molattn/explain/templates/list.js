// The list of molecules: searchable and sortable; a structure is drawn when it comes into view.
const [ROW, SMILES, PREDICTION, LOW, HIGH, ATOMS, STRONGEST, TARGET, NAME, MEASURED] = Array(10).keys();
const targetOf = (one) => index.targets[one[TARGET]];
const ORDERS = {
  "row": (one) => one[ROW],
  "prediction, lowest first": (one) => one[PREDICTION],
  "prediction, highest first": (one) => -one[PREDICTION],
  "largest atom score": (one) => -one[STRONGEST],
  "number of atoms": (one) => one[ATOMS],
  "widest interval": (one) => (one[LOW] === null ? 0 : one[LOW] - one[HIGH]),
};

class MoleculeList {
  constructor(show) {
    this.show = show;
    this.host = $("molecules");
    const seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        this.fill(target);
      }
    }, { root: this.host, rootMargin: "200px" });
    this.items = index.molecules.map((one, place) => this.item(one, place));
    for (const item of this.items) seen.observe(item.firstChild);
    $("sort").append(...Object.keys(ORDERS).map((name) => element("option", {}, name)));
    for (const id of ["sort", "search"]) $(id).addEventListener("input", () => this.refresh());
    this.refresh();
  }

  refresh() {
    const sought = $("search").value.trim();
    const key = ORDERS[$("sort").value];
    const all = index.molecules;
    this.order = [...all.keys()]
      .filter((place) => all[place][SMILES].includes(sought) || String(all[place][ROW]) === sought
        || all[place][NAME].toLowerCase().includes(sought.toLowerCase()))
      .sort((a, b) => key(all[a]) - key(all[b]) || a - b);
    const found = this.order.length === all.length ? "" : `${count(this.order.length)} of `;
    $("found").textContent = found + plural(all.length, "molecule");
    this.host.replaceChildren(...this.order.map((place) => this.items[place]));
    this.host.scrollTop = 0;
    this.mark();
  }

  item(one, place) {
    const target = index.targets.length > 1 ? `, ${targetOf(one)}` : "";
    return element("li", {}, element("button", { type: "button", "data-place": place, on: { click: () => this.show(place) } },
      element("span", { class: "thumb" }),
      element("span", {}, element("b", {}, withUnit(number(one[PREDICTION]))), element("code", {}, one[SMILES]),
        element("small", {}, `${one[NAME] || `row ${one[ROW]}`}${target}`))));
  }

  async fill(item) {
    const place = Number(item.dataset.place);
    const molecule = await load(place);
    const [scores] = molecule.methods;
    const label = `Structure of row ${index.molecules[place][ROW]}`;
    paintScores(structure(item.querySelector(".thumb"), molecule, label), scores, scores.score_limit);
  }

  mark() {
    const at = this.order.indexOf(this.chosen);
    $("previous").disabled = at <= 0;
    $("next").disabled = at < 0 || at === this.order.length - 1;
  }

  choose(place) {
    this.host.querySelector("[aria-current]")?.removeAttribute("aria-current");
    this.chosen = place;
    this.mark();
    const item = this.items[place].firstChild;
    item.setAttribute("aria-current", true);
    const [box, frame] = [item, this.host].map((part) => part.getBoundingClientRect());
    if (box.top < frame.top) this.host.scrollTop -= frame.top - box.top;
    if (box.bottom > frame.bottom) this.host.scrollTop += box.bottom - frame.bottom;
  }

  step(by) {
    this.show(this.order[this.order.indexOf(this.chosen) + by]);
  }
}
