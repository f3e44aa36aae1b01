// A molecule as SVG: colored halos below its lines, and a hit area for each atom.
const MARGIN = 20;

function shape(parent, name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

// Draws a molecule; `choose` is called with the atom that the pointer or the keys are at.
function structure(host, molecule, label, choose) {
  host.replaceChildren();
  if (!molecule.outline) {
    host.append(element("p", { class: "undrawn" }, molecule.not_drawn));
    return null;
  }
  const { width, height, atoms, paths } = molecule.outline;
  const [w, h] = [width + 2 * MARGIN, height + 2 * MARGIN];
  const svg = shape(host, "svg", { class: "structure", role: choose ? "group" : "img", "aria-label": label,
    viewBox: `${-MARGIN} ${-MARGIN} ${w} ${h}` });
  // Small molecules are not enlarged.
  svg.style.maxWidth = `${1.6 * w}px`;
  svg.style.maxHeight = `min(100%, ${1.6 * h}px)`;
  const bonds = molecule.bonds.map(([a, b]) =>
    shape(svg, "line", { x1: atoms[a][0], y1: atoms[a][1], x2: atoms[b][0], y2: atoms[b][1] }));
  const halos = atoms.map(([cx, cy]) => shape(svg, "circle", { cx, cy, r: 12.5 }));
  const arcs = shape(svg, "g", { "aria-hidden": "true" });
  for (const [d, line] of paths) shape(svg, "path", line ? { d, "stroke-width": line } : { d, class: "solid" });
  const ring = shape(svg, "circle", { r: 14.5, class: "ring", visibility: "hidden" });
  const hits = !choose ? [] : atoms.map(([cx, cy], atom) => {
    const hit = shape(svg, "circle",
      { cx, cy, r: 15, class: "hit", tabindex: -1, role: "button", "data-atom": atom });
    for (const event of ["pointerenter", "focus", "click"]) hit.addEventListener(event, () => choose(atom));
    hit.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      hits[(atom + step + hits.length) % hits.length].focus();
    });
    return hit;
  });
  return { atoms, bonds, halos, arcs, ring, hits };
}

function halo(mark, name, value, limit) {
  mark.setAttribute("class", `${mark.tagName === "line" ? "bond" : "halo"} ${name}`);
  mark.style.opacity = limit > 0 ? Math.min(1, Math.abs(value) / limit) : 0;
}

function paintScores(drawn, scores, limit) {
  const paint = (mark, value) => halo(mark, scores.signed ? (value > 0 ? "raise" : "lower") : "share", value, limit);
  drawn?.halos.forEach((mark, atom) => paint(mark, scores.atom_scores[atom]));
  drawn?.bonds.forEach((mark, bond) => paint(mark, scores.bond_scores[bond]));
}

// Halos for all weights of an atom, and arcs to the largest of them.
function paintWeights(drawn, atom, weights, limit, towards) {
  if (!drawn) return;
  drawn.halos.forEach((mark, other) => halo(mark, "share", weights[other], limit));
  drawn.bonds.forEach((mark) => { mark.style.opacity = 0; });
  drawn.arcs.replaceChildren();
  const [x, y] = drawn.atoms[atom];
  const bend = towards ? 0.28 : -0.28;
  for (const other of largest(weights, 5)) {
    if (other === atom || weights[other] < 0.25 * limit) continue;
    const [u, v] = drawn.atoms[other];
    const middle = `${(x + u) / 2 - bend * (v - y)} ${(y + v) / 2 + bend * (u - x)}`;
    shape(drawn.arcs, "path", { d: `M${x} ${y}Q${middle} ${u} ${v}`, class: "arc",
      "stroke-width": 0.5 + 2 * (weights[other] / limit) });
  }
}

function markAtom(drawn, atom) {
  if (!drawn) return;
  const [cx, cy] = drawn.atoms[atom];
  for (const [name, value] of Object.entries({ cx, cy, visibility: "visible" })) drawn.ring.setAttribute(name, value);
  drawn.hits.forEach((hit, place) => {
    hit.setAttribute("tabindex", place === atom ? 0 : -1); // a single tab stop; arrow keys move between atoms
    hit.setAttribute("aria-pressed", place === atom);
  });
}

// The color scale below a structure, with the numbers at its ends.
function legend(host, kind, ends, what) {
  host.replaceChildren(element("div", { class: `scale ${kind}` }),
    element("div", { class: "ends" }, ...ends.map((text) => element("span", {}, text))),
    element("div", { class: "what" }, what));
}
