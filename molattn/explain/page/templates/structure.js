// A molecule as SVG: colored halos below its lines, and a hit area for each atom.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 20;
const NO_OUTLINE = { width: 0, height: 0, atoms: [], paths: [] }; // cannot be drawn

function shape(parent, name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function structure(host, molecule, label, choose) {
  const { width, height, atoms, paths } = molecule.outline ?? NO_OUTLINE;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "structure");
  svg.setAttribute("role", choose ? "group" : "img");
  svg.setAttribute("aria-label", label);
  const [w, h] = [width + 2 * MARGIN, height + 2 * MARGIN];
  svg.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${w} ${h}`);
  // Small molecules are not enlarged.
  svg.style.maxWidth = `${1.6 * w}px`;
  svg.style.maxHeight = `min(100%, ${1.6 * h}px)`;
  const bonds = (molecule.outline ? molecule.bonds : []).map(([a, b]) =>
    shape(svg, "line", { x1: atoms[a][0], y1: atoms[a][1], x2: atoms[b][0], y2: atoms[b][1] }));
  const halos = atoms.map(([cx, cy]) => shape(svg, "circle", { cx, cy, r: 12.5 }));
  const arcs = shape(svg, "g", { "aria-hidden": "true" });
  for (const [d, line] of paths) {
    shape(svg, "path", line ? { d, "stroke-width": line } : { d, class: "solid" });
  }
  const ring = shape(svg, "circle", { r: 14.5, class: "ring", visibility: "hidden" });
  const hits = !choose ? [] : atoms.map(([cx, cy], atom) => {
    const hit = shape(svg, "circle", { cx, cy, r: 15, class: "hit", tabindex: -1, role: "button" });
    hit.dataset.atom = atom;
    for (const event of ["pointerenter", "focus", "click"]) {
      hit.addEventListener(event, () => choose(atom));
    }
    hit.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      hits[(atom + step + hits.length) % hits.length].focus();
    });
    return hit;
  });
  host.replaceChildren(molecule.outline ? svg : element("p", { class: "undrawn" }, molecule.not_drawn));
  return { svg, atoms, bonds, halos, arcs, ring, hits };
}

function halo(mark, kind, value, limit) {
  const share = limit > 0 ? Math.min(1, Math.abs(value) / limit) : 0;
  const name = kind === "signed" ? (value > 0 ? "raise" : "lower") : "share";
  mark.setAttribute("class", `${mark.tagName === "line" ? "bond" : "halo"} ${name}`);
  mark.style.opacity = share;
}

function paintScores(drawn, scores, limit) {
  const kind = scores.signed ? "signed" : "share";
  drawn.halos.forEach((mark, atom) => halo(mark, kind, scores.atoms[atom], limit));
  drawn.bonds.forEach((mark, bond) => halo(mark, kind, scores.bonds[bond], limit));
}

// Halos for all weights of an atom, and arcs to the largest of them.
function paintWeights(drawn, atom, weights, limit, towards) {
  drawn.halos.forEach((mark, other) => halo(mark, "share", weights[other], limit));
  drawn.bonds.forEach((mark) => { mark.style.opacity = 0; });
  drawn.arcs.replaceChildren();
  if (!drawn.atoms.length) return;
  const [x, y] = drawn.atoms[atom];
  for (const other of largest(weights, 5)) {
    if (other === atom || weights[other] < 0.25 * limit) continue;
    const [u, v] = drawn.atoms[other];
    const [dx, dy] = [u - x, v - y];
    const bend = towards ? 0.28 : -0.28;
    const [mx, my] = [(x + u) / 2 - bend * dy, (y + v) / 2 + bend * dx];
    shape(drawn.arcs, "path", {
      d: `M${x} ${y}Q${mx} ${my} ${u} ${v}`,
      class: "arc",
      "stroke-width": 0.5 + 2 * (weights[other] / limit),
    });
  }
}

function markAtom(drawn, atom) {
  if (!drawn.atoms.length) return;
  const [cx, cy] = drawn.atoms[atom];
  drawn.ring.setAttribute("cx", cx);
  drawn.ring.setAttribute("cy", cy);
  drawn.ring.setAttribute("visibility", "visible");
  drawn.hits.forEach((hit, place) => {
    hit.setAttribute("tabindex", place === atom ? 0 : -1); // a single tab stop; arrow keys move between atoms
    hit.setAttribute("aria-pressed", place === atom);
  });
}

function largest(values, count) {
  return [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, count);
}

function legend(host, kind, low, high, what) {
  const ends = kind === "signed" ? [low, "0", high] : ["0", high];
  host.replaceChildren(
    element("div", { class: `scale ${kind}` }),
    element("div", { class: "ends" }, ...ends.map((text) => element("span", {}, text))),
    element("div", { class: "what" }, what),
  );
}
