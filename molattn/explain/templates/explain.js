// The view of one molecule, and its controls.
const MOST_FRAGMENTS = 14;
const state = { place: 0, atom: 0 };
const chosen = (id) => ($(id).value === "mean" ? null : Number($(id).value));
const towards = () => $("direction").value === "to";
const scores = () => state.molecule.methods[Number($("method").value)];

function fillSelect(id, names, every) {
  const options = names.map((name, place) => element("option", { value: place }, name));
  $(id).replaceChildren(...(every ? [element("option", { value: "mean" }, every)] : []), ...options);
}

async function show(place) {
  state.place = place;
  const molecule = await load(place);
  if (state.place !== place) return; // another molecule was chosen in the meantime
  const one = index.molecules[place];
  $("row").textContent = one[NAME] ? `${one[NAME]} (row ${one[ROW]})` : `Row ${one[ROW]}`;
  $("smiles").textContent = one[SMILES];
  history.replaceState(null, "", `#row-${one[ROW]}`);
  list.choose(place);
  Object.assign(state, {
    molecule,
    parts: structure($("parts"), molecule, "Structure, colored by score", choose),
    attention: structure($("attention"), molecule, "Structure, colored by attention", choose),
  });
  [state.atom] = largest(scores().atom_scores.map(Math.abs), 1);
  showScores();
  showAttention();
}

function showScores() {
  const { signed: isSigned, method, score_limit: own } = scores();
  const limit = $("common").checked ? index.limits[method] : own;
  paintScores(state.parts, scores(), limit);
  if (isSigned) {
    const target = `${targetOf(index.molecules[state.place])}${index.unit && ` (${index.unit})`}`;
    legend($("parts-legend"), "signed", [number(-limit, 2), "0", `+${number(limit, 2)}`], `contribution to ${target}, by ${method}`);
  } else {
    legend($("parts-legend"), "share", ["0", number(limit, 2)], `importance of each atom by ${method} (unsigned)`);
  }
  $("parts-caption").textContent = isSigned ? "Contributions to the prediction" : "Importance of each atom";
  showFragments();
  showFacts();
  showScore();
}

// The sums of the scores of ring systems and substituents, largest first; pointing at one marks its atoms.
function showFragments() {
  const { fragments } = state.molecule;
  const { atom_scores: atoms, signed: isSigned } = scores();
  const sums = fragments.map(([, group]) => group.reduce((total, atom) => total + atoms[atom], 0));
  const most = Math.max(...sums.map(Math.abs));
  const mark = (group) => state.parts?.hits.forEach((hit, atom) => hit.classList.toggle("marked", group.includes(atom)));
  const rows = largest(sums.map(Math.abs), MOST_FRAGMENTS).map((place) => {
    const [name, group] = fragments[place];
    const bar = element("i", { class: isSigned ? (sums[place] > 0 ? "raise" : "lower") : "share" });
    bar.style.width = `${most && 100 * Math.abs(sums[place]) / most}%`;
    const [on, off] = [() => mark(group), () => mark([])];
    return element("li", { tabindex: 0, on: { pointerenter: on, pointerleave: off, focus: on, blur: off } },
      element(name.includes("*") ? "code" : "span", {}, name),
      element("span", { class: "bar", "aria-hidden": "true" }, bar),
      element("span", { class: "value" }, isSigned ? signed(sums[place]) : number(sums[place])));
  });
  $("fragments").replaceChildren(...rows);
  const others = fragments.length - rows.length;
  $("other-fragments").textContent = others ? `and ${plural(others, "smaller fragment")}` : "";
}

function showFacts() {
  const one = index.molecules[state.place];
  const { probability, confidence, expected_error: error } = state.molecule;
  const { atom_scores: atoms, other_scores: others, baseline, residual, tolerance } = scores();
  const rows = [[targetOf(one), withUnit(number(one[PREDICTION]))]];
  if (probability !== null) rows.push(["probability", number(probability)]);
  if (one[LOW] !== null) rows.push([index.interval, `${number(one[LOW])} to ${number(one[HIGH])}`]);
  if (one[MEASURED]) {
    const error = probability === null ? one[PREDICTION] - Number(one[MEASURED]) : NaN;
    rows.push(["measured", one[MEASURED].replace(/^-/, MINUS)]);
    if (Number.isFinite(error)) rows.push(["error", signed(error)]);
  }
  if (confidence) {
    const size = probability === null ? errorText(error, one[PREDICTION], index.is_logarithm) : number(error);
    rows.push(["confidence", confidence], ["expected error", size]);
  }
  if (baseline !== null) {
    const sums = { "sum of atom scores": atoms.reduce((total, value) => total + value, 0), ...others };
    const within = Math.abs(residual) <= tolerance ? "within" : "exceeds";
    rows.push(["baseline", number(baseline)], ...Object.entries(sums).map(([name, value]) => [name, signed(value)]),
      [`residual (${within} ${number(tolerance, 2)})`, number(residual, 2)]);
  }
  $("facts").replaceChildren(...rows.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  $("terms").hidden = baseline === null;
}

function showScore() {
  const value = scores().atom_scores[state.atom];
  $("score").replaceChildren(element("strong", {}, state.molecule.names[state.atom]),
    `: ${scores().signed ? withUnit(signed(value)) : number(value)}`);
}

function showAttention() {
  const { weights, weight_scales, n } = state.molecule;
  state.weights = mean(weights, weight_scales, n * n, chosen("layer"), chosen("head"));
  state.limit = state.weights.reduce((most, value) => Math.max(most, value), 0);
  legend($("attention-legend"), "share", ["0", percent(state.limit)], "attention weight");
  choose(state.atom);
}

function choose(atom, cell) {
  const { molecule: { names, n, gates }, weights, limit } = state;
  state.atom = atom;
  const own = Float64Array.from(names, (_, other) => weights[towards() ? atom * n + other : other * n + atom]);
  const order = largest(own, gates ? 6 : 12);
  const [i, j] = cell ?? (towards() ? [atom, order[0]] : [order[0], atom]);
  matrix.show(names, weights, limit, atom, towards(), [i, j]);
  paintWeights(state.attention, atom, own, limit, towards());
  for (const drawn of [state.parts, state.attention]) markAtom(drawn, atom);
  const words = order.slice(0, 3).map((other) => `${names[other]} ${percent(own[other])}`);
  $("weights").replaceChildren(element("strong", {}, names[atom]),
    ` ${towards() ? "attends to" : "is attended to by"} ${words.join(", ")}`);
  $("top-caption").textContent = `${names[atom]} ${towards() ? "attends most to" : "is attended to most by"}`;
  meter("top", order.map((other) => [names[other], own[other] / (limit || 1), percent(own[other]), false]));
  $("cell").textContent = `${names[i]} attends to ${names[j]}: ${percent(weights[i * n + j])}`;
  $("matrix").setAttribute("aria-label", `Attention of all pairs of atoms; ${$("cell").textContent}; arrow keys move`);
  showScore();
  showGates();
  showNumbers(own);
}

function meter(id, rows) {
  $(id).replaceChildren(...rows.map(([name, share, value, isChosen]) => {
    const fill = element("i");
    fill.style.width = `${100 * Math.min(1, share)}%`;
    return element("li", { class: isChosen && "chosen" }, element("span", {}, name),
      element("span", { class: "bar", "aria-hidden": "true" }, fill), element("span", { class: "value" }, value));
  }));
}

function showGates() {
  const { molecule, atom } = state;
  $("gates-figure").hidden = !molecule.gates;
  if (!molecule.gates) return;
  const layer = chosen("layer");
  const where = layer === null ? "mean over layers" : `layer ${layer + 1}`;
  $("gates-caption").textContent = `Gates of ${molecule.names[atom]}, ${where}`;
  meter("gates", index.heads.map((name, head) => {
    const value = mean(molecule.gates, molecule.gate_scales, molecule.n, layer, head)[atom];
    return [`head ${name}`, value, value.toFixed(2), head === chosen("head")];
  }));
}

function showNumbers(own) {
  if (!$("numbers").closest("details").open) return;
  const { molecule: { names, methods }, atom } = state;
  const cell = (text) => element("td", { class: "num" }, text);
  const headings = [...methods.map(({ method }) => method), `attention ${towards() ? "from" : "to"} ${names[atom]}`];
  const head = element("tr", {}, element("th", { scope: "col" }, "Atom"),
    ...headings.map((text) => element("th", { scope: "col", class: "num" }, text)));
  const rows = names.map((name, place) => element("tr", { class: place === atom && "chosen" },
    element("th", { scope: "row" }, name),
    ...methods.map((one) => cell(one.signed ? signed(one.atom_scores[place]) : number(one.atom_scores[place]))),
    cell(percent(own[place]))));
  $("numbers").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

const fromAddress = () => Math.max(0, index.molecules.findIndex((one) => `#row-${one[ROW]}` === location.hash));

fillSelect("method", index.methods);
fillSelect("layer", index.layers, "all (mean)");
fillSelect("head", index.heads, "all (mean)");
$("method-label").hidden = index.methods.length < 2;
$("view").hidden = false;
const matrix = new Matrix($("matrix"), (row, column) => choose(towards() ? row : column, [row, column]));
const list = new MoleculeList(show);
for (const id of ["method", "common"]) $(id).addEventListener("change", showScores);
for (const id of ["layer", "head"]) $(id).addEventListener("change", showAttention);
$("direction").addEventListener("change", () => choose(state.atom));
$("numbers").closest("details").addEventListener("toggle", () => choose(state.atom));
for (const [id, by] of [["previous", -1], ["next", 1]]) $(id).addEventListener("click", () => list.step(by));
addEventListener("hashchange", () => show(fromAddress()));
show(fromAddress());
