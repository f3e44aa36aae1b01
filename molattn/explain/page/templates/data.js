// The data of the page: an index of all molecules, and each molecule, decoded when it is shown.
const $ = (id) => document.getElementById(id);
const index = JSON.parse($("index").textContent);
const MINUS = "\u2212";
const KEPT = 60;
const cache = new Map();

function number(value, digits = 3) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5)
    ? size.toExponential(digits - 1)
    : size.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size || 1))));
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
}
const signed = (value) => (value > 0 ? "+" : "") + number(value);
function percent(weight) {
  const share = 100 * weight;
  return share > 0 && share < 1 ? "< 1%" : `${Math.round(share)}%`;
}
const withUnit = (text) => (index.unit ? `${text} ${index.unit}` : text);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Layout: the length of the JSON (4 bytes), the JSON, weights [layers, heads, n, n], gates
// [layers, heads, n], one byte each, as a fraction of the largest of the layer and head.
async function decode(place) {
  const packed = Uint8Array.from(atob($(`m${place}`).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const molecule = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const n = molecule.names.length;
  const [layers, heads] = molecule.shape;
  molecule.n = n;
  const start = 4 + length;
  molecule.weights = bytes.subarray(start, start + layers * heads * n * n);
  molecule.gates = molecule.gate_scales && bytes.subarray(start + layers * heads * n * n);
  return molecule;
}

function load(place) {
  if (!cache.has(place)) cache.set(place, decode(place));
  const found = cache.get(place);
  cache.delete(place); // moved to the end: the least recently used is dropped first
  cache.set(place, found);
  if (cache.size > KEPT) cache.delete(cache.keys().next().value);
  return found;
}

// The mean over the chosen layers and heads (null = all of them) of numbers of `size` each.
function mean(bytes, scales, shape, size, layer, head) {
  const total = new Float64Array(size);
  const [layers, heads] = shape;
  let count = 0;
  for (let l = 0; l < layers; l++) {
    for (let h = 0; h < heads; h++) {
      if ((layer !== null && l !== layer) || (head !== null && h !== head)) continue;
      const from = (l * heads + h) * size;
      const scale = scales[l * heads + h] / 255;
      for (let k = 0; k < size; k++) total[k] += scale * bytes[from + k];
      count++;
    }
  }
  return total.map((value) => value / count);
}
const attention = (m, layer, head) =>
  mean(m.weights, m.weight_scales, m.shape, m.n * m.n, layer, head);
const gates = (m, layer, head) => mean(m.gates, m.gate_scales, m.shape, m.n, layer, head);
