// The list of molecules: searchable, sortable, and filled as it is scrolled.
const PART = 30;
const [ROW, SMILES, PREDICTION, LOW, HIGH, ATOMS, STRONGEST, TARGET] = [0, 1, 2, 3, 4, 5, 6, 7];
const targetOf = (one) => index.targets[one[TARGET]];
const ORDERS = {
  "row": (one) => one[ROW],
  "prediction, lowest first": (one) => one[PREDICTION],
  "prediction, highest first": (one) => -one[PREDICTION],
  "largest atom score": (one) => -one[STRONGEST],
  "number of atoms": (one) => one[ATOMS],
};
if (index.molecules.some((one) => one[LOW] !== null)) {
  ORDERS["widest interval"] = (one) => (one[LOW] === null ? 0 : one[LOW] - one[HIGH]);
}

class MoleculeList {
  constructor(show) {
    this.show = show;
    this.host = $("molecules");
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.fill(entry.target);
    }, { root: this.host, rootMargin: "200px" });
    $("sort").append(...Object.keys(ORDERS).map((name) => element("option", {}, name)));
    $("sort").addEventListener("change", () => this.refresh());
    $("search").addEventListener("input", () => this.refresh());
    this.host.addEventListener("scroll", () => this.grow(), { passive: true });
    this.refresh();
  }

  refresh() {
    const sought = $("search").value.trim();
    const key = ORDERS[$("sort").value];
    const all = index.molecules;
    this.order = [...all.keys()]
      .filter((place) => !sought || all[place][SMILES].includes(sought) ||
        String(all[place][ROW]) === sought)
      .sort((a, b) => key(all[a]) - key(all[b]) || a - b);
    const count = this.order.length;
    $("found").textContent = count === all.length
      ? `${count} molecule${count === 1 ? "" : "s"}` : `${count} of ${all.length} molecules`;
    this.seen.disconnect();
    this.host.replaceChildren();
    this.host.scrollTop = 0;
    this.grow();
    this.mark();
  }

  // Add items until the visible part of the list is full, and there are at least `count`.
  grow(count = 0) {
    const { host } = this;
    while (host.children.length < this.order.length && (host.children.length < count ||
        host.scrollTop + host.clientHeight + 400 > host.scrollHeight)) {
      const from = host.children.length;
      for (const place of this.order.slice(from, from + PART)) host.append(this.item(place));
      this.mark();
    }
  }

  item(place) {
    const one = index.molecules[place];
    const thumb = element("span", { class: "thumb" });
    const button = element("button", { type: "button" }, thumb, element("span", {},
      element("b", {}, withUnit(number(one[PREDICTION]))), element("code", {}, one[SMILES]),
      element("small", {}, `row ${one[ROW]}`,
        ...(index.targets.length > 1 ? [", ", targetOf(one)] : []))));
    button.dataset.place = place;
    button.addEventListener("click", () => this.show(place));
    this.seen.observe(button);
    return element("li", {}, button);
  }

  async fill(button) {
    this.seen.unobserve(button);
    const place = Number(button.dataset.place);
    const molecule = await load(place);
    const label = `Structure of row ${index.molecules[place][ROW]}`;
    const drawn = structure(button.querySelector(".thumb"), molecule, label);
    const scores = molecule.methods[0];
    paintScores(drawn, scores, scores.limit);
  }

  mark() {
    for (const button of this.host.querySelectorAll("button")) {
      button.setAttribute("aria-current", Number(button.dataset.place) === this.chosen);
    }
    const at = this.order.indexOf(this.chosen);
    $("previous").disabled = at <= 0;
    $("next").disabled = at < 0 || at === this.order.length - 1;
  }

  choose(place) {
    this.chosen = place;
    this.grow(this.order.indexOf(place) + 1);
    this.mark();
    const button = this.host.querySelector("[aria-current=true]");
    if (!button) return;
    const [box, frame] = [button, this.host].map((part) => part.getBoundingClientRect());
    if (box.top < frame.top) this.host.scrollTop -= frame.top - box.top;
    if (box.bottom > frame.bottom) this.host.scrollTop += box.bottom - frame.bottom;
  }

  step(by) {
    const next = this.order[this.order.indexOf(this.chosen) + by];
    if (next !== undefined) this.show(next);
  }
}
