// The view of one molecule, and its controls.
const state = { molecule: null, place: 0, atom: 0, parts: null, attention: null };
const whole = (select) => (select.value === "mean" ? null : Number(select.value));
const towards = () => $("direction").value === "to";
const scoresOf = (molecule) => molecule.methods[Number($("method").value)];

function fillSelect(select, names, every) {
  const options = names.map((name, place) => element("option", { value: place }, name));
  if (every) options.unshift(element("option", { value: "mean" }, every));
  select.replaceChildren(...options);
}

async function show(place) {
  state.place = place;
  const molecule = await load(place);
  if (state.place !== place) return; // another molecule was chosen in the meantime
  state.molecule = molecule;
  const one = index.molecules[place];
  $("row").textContent = `Row ${one[ROW]}`;
  $("smiles").textContent = one[SMILES];
  history.replaceState(null, "", `#row-${one[ROW]}`);
  list.choose(place);
  state.parts = structure($("parts"), molecule, "Structure, colored by score", choose);
  state.attention = structure($("attention"), molecule, "Structure, colored by attention", choose);
  const sizes = scoresOf(molecule).atoms.map(Math.abs);
  state.atom = largest(sizes, 1)[0];
  paintParts();
  paintAttention();
}

function paintParts() {
  const { molecule, parts } = state;
  const scores = scoresOf(molecule);
  const common = $("common").checked;
  const limit = common ? index.limits[scores.method] : scores.limit;
  paintScores(parts, scores, limit);
  const what = scores.signed
    ? `contribution to ${targetOf(index.molecules[state.place])}${index.unit && ` (${index.unit})`}, by ${scores.method}`
    : `importance of each atom by ${scores.method} (unsigned)`;
  legend($("parts-legend"), scores.signed ? "signed" : "share", number(-limit, 2),
    (scores.signed ? "+" : "") + number(limit, 2), what);
  $("parts-caption").textContent = scores.signed ? "Contributions to the prediction" : "Importance of each atom";
  facts(scores);
  readScore();
}

function facts(scores) {
  const one = index.molecules[state.place];
  const [prediction, low, high] = [PREDICTION, LOW, HIGH].map((column) => one[column]);
  const { probability } = state.molecule;
  const rows = [[targetOf(one), withUnit(number(prediction))]];
  if (probability !== null) rows.push(["probability", number(probability)]);
  if (low !== null) rows.push([index.interval, `${number(low)} to ${number(high)}`]);
  if (scores.baseline !== null) {
    const sum = scores.atoms.reduce((total, value) => total + value, 0);
    rows.push(["baseline", number(scores.baseline)], ["sum of atom scores", signed(sum)]);
    rows.push(...Object.entries(scores.others).map(([name, value]) => [name, signed(value)]));
    const within = Math.abs(scores.residual) <= scores.tolerance;
    rows.push([`residual (${within ? "within" : "exceeds"} ${number(scores.tolerance, 2)})`,
      number(scores.residual, 2)]);
  }
  $("facts").replaceChildren(...rows.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function readScore() {
  const { molecule, atom } = state;
  const scores = scoresOf(molecule);
  const value = scores.atoms[atom];
  const text = scores.signed ? withUnit(signed(value)) : number(value);
  $("score").replaceChildren(element("strong", {}, molecule.names[atom]), `: ${text}`);
}

function paintAttention() {
  const { molecule } = state;
  const [layer, head] = [whole($("layer")), whole($("head"))];
  state.weights = attention(molecule, layer, head);
  state.limit = state.weights.reduce((most, value) => Math.max(most, value), 0);
  matrix.show(molecule.names, state.weights, state.limit);
  legend($("attention-legend"), "share", "", percent(state.limit), "attention weight");
  choose(state.atom);
}

function choose(atom, cell) {
  const { molecule, weights, limit } = state;
  state.atom = atom;
  const n = molecule.n;
  const own = Float64Array.from({ length: n }, (_, other) =>
    towards() ? weights[atom * n + other] : weights[other * n + atom]);
  const [best] = largest(own, 1);
  matrix.mark(atom, towards(), cell ?? (towards() ? [atom, best] : [best, atom]));
  paintWeights(state.attention, atom, own, limit, towards());
  markAtom(state.parts, atom);
  markAtom(state.attention, atom);
  const name = molecule.names[atom];
  const order = largest(own, molecule.gates ? 6 : 12);
  const words = order.slice(0, 3).map((other) => `${molecule.names[other]} ${percent(own[other])}`);
  const verb = towards() ? " attends to " : " is attended to by ";
  $("weights").replaceChildren(element("strong", {}, name), `${verb}${words.join(", ")}`);
  $("top-caption").textContent = towards() ? `${name} attends most to` : `${name} is attended to most by`;
  meter($("top"), order.map((other) =>
    [molecule.names[other], own[other] / (limit || 1), percent(own[other]), false]));
  const [i, j] = matrix.cell;
  $("cell").textContent = `${molecule.names[i]} attends to ${molecule.names[j]}: ${percent(weights[i * n + j])}`;
  $("matrix").setAttribute("aria-label",
    `Attention of all pairs of atoms; ${$("cell").textContent}; arrow keys move`);
  readScore();
  showGates();
  showNumbers(own);
}

function meter(host, rows) {
  host.replaceChildren(...rows.map(([name, share, value, chosen]) => {
    const fill = element("i");
    fill.style.width = `${100 * Math.min(1, share)}%`;
    return element("li", chosen ? { class: "chosen" } : {}, element("span", {}, name),
      element("span", { class: "bar", "aria-hidden": "true" }, fill),
      element("span", { class: "value" }, value));
  }));
}

function showGates() {
  const { molecule, atom } = state;
  $("gates-figure").hidden = !molecule.gates;
  if (!molecule.gates) return;
  const [layer, head] = [whole($("layer")), whole($("head"))];
  const where = layer === null ? "mean over layers" : `layer ${layer + 1}`;
  $("gates-caption").textContent = `Gates of ${molecule.names[atom]}, ${where}`;
  meter($("gates"), index.heads.map((name, place) => {
    const value = gates(molecule, layer, place)[atom];
    return [`head ${name}`, value, value.toFixed(2), place === head];
  }));
}

function showNumbers(own) {
  const table = $("numbers");
  if (!table.closest("details").open) return;
  const { molecule, atom } = state;
  const headings = ["Atom", ...molecule.methods.map((one) => one.method),
    `attention ${towards() ? "from" : "to"} ${molecule.names[atom]}`];
  const head = headings.map((text, place) =>
    element("th", { scope: "col", ...(place ? { class: "num" } : {}) }, text));
  const rows = molecule.names.map((name, place) => element("tr", place === atom ? { class: "chosen" } : {},
    element("th", { scope: "row" }, name),
    ...molecule.methods.map((one) => element("td", { class: "num" },
      one.signed ? signed(one.atoms[place]) : number(one.atoms[place]))),
    element("td", { class: "num" }, percent(own[place]))));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows));
}

fillSelect($("method"), index.methods);
fillSelect($("layer"), index.layers, "all (mean)");
fillSelect($("head"), index.heads, "all (mean)");
$("method-label").hidden = index.methods.length < 2;
$("view").hidden = false;
const matrix = new Matrix($("matrix"), (row, column) =>
  choose(towards() ? row : column, [row, column]));
const list = new MoleculeList(show);
$("method").addEventListener("change", paintParts);
$("common").addEventListener("change", paintParts);
for (const id of ["layer", "head"]) $(id).addEventListener("change", paintAttention);
$("direction").addEventListener("change", () => choose(state.atom));
document.querySelector(".detail details").addEventListener("toggle", () => choose(state.atom));
$("previous").addEventListener("click", () => list.step(-1));
$("next").addEventListener("click", () => list.step(1));

function fromAddress() {
  const row = Number(location.hash.replace("#row-", ""));
  const place = index.molecules.findIndex((one) => one[ROW] === row);
  return place < 0 ? list.order[0] : place;
}
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#row-")) show(fromAddress());
});
show(fromAddress());
