// Elements, and SVG text as elements in the colors of the page.
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["g", "path", "rect", "circle", "ellipse", "line", "polygon", "polyline",
  "text", "tspan", "defs", "linearGradient", "stop"]);
const KEPT = new Set(["id", "d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry",
  "width", "height", "points", "offset", "transform", "fill", "fill-opacity", "fill-rule",
  "stroke", "stroke-width", "stroke-opacity", "stroke-linecap", "stroke-linejoin",
  "stroke-dasharray", "opacity", "stop-color", "stop-opacity", "font-size", "font-family",
  "text-anchor", "textLength", "lengthAdjust", "font-weight"]);
// The colors of molattn.chem.draw.
const INK = { "#000000": "currentColor", "#1f4fd8": "var(--nitrogen)", "#c81e1e": "var(--oxygen)",
  "#8a6100": "var(--sulfur)", "#b4530a": "var(--phosphorus)", "#1a7f37": "var(--halogen)" };

export const $ = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (key.startsWith("aria-")) made.setAttribute(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const button = (text, act, attributes = {}) =>
  element("button", { type: "button", on: { click: act }, ...attributes }, text);

// A copy that has shapes and texts only, so that no SVG can do anything but be seen. With
// `recolor`, ink is that of the page, and any other fill is the mark of an atom.
export function picture(text, label, { recolor = true } = {}) {
  // The content security policy refuses style attributes already when they are parsed.
  const readable = text.replaceAll(/\sstyle=(?=["'])/g, " data-style=");
  const source = new DOMParser().parseFromString(readable, "image/svg+xml").documentElement;
  const made = document.createElementNS(SVG, "svg");
  const box = source.getAttribute("viewBox");
  if (box) made.setAttribute("viewBox", box);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", label);
  copy(source, made, recolor);
  return made;
}

function copy(from, into, recolor) {
  for (const child of from.children) {
    if (!DRAWN.has(child.localName)) continue;
    const made = document.createElementNS(SVG, child.localName);
    const given = [...child.attributes].map((one) => [one.name, one.value]);
    for (const part of (child.getAttribute("data-style") ?? "").split(";")) {
      const at = part.indexOf(":");
      if (at > 0) given.push([part.slice(0, at).trim(), part.slice(at + 1).trim()]);
    }
    for (const [name, value] of given) {
      if (!KEPT.has(name) || (/url\(/.test(value) && !/^url\(['"]?#/.test(value))) continue;
      const paint = recolor && (name === "fill" || name === "stroke") && value.startsWith("#");
      if (!paint) made.setAttribute(name, value);
      else made.style.setProperty(name, INK[value.toLowerCase()] ?? "var(--differs)");
    }
    if (["text", "tspan"].includes(child.localName) && !child.children.length) {
      made.textContent = child.textContent;
    }
    copy(child, made, recolor);
    into.append(made);
  }
}

let announced = 0;
// Says something to screen readers, at most every few seconds unless it is the last word.
export function announce(text, last = true) {
  const now = Date.now();
  if (!last && now - announced < 5000) return;
  announced = now;
  $("announce").textContent = text;
}

export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export function debounced(act, delay) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), delay);
  };
}
