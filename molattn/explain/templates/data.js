// The data of the page: an index of all molecules, and each molecule, decoded when it is shown.
const index = JSON.parse($("index").textContent);
const decoded = new Map();
const KEPT = 60;

const withUnit = (text) => (index.unit ? `${text} ${index.unit}` : text);

// Layout: the length of the JSON (4 bytes), the JSON, weights [layers, heads, n, n], gates
// [layers, heads, n], one byte each, as a fraction of the largest of the layer and head.
async function decode(place) {
  const packed = Uint8Array.from(atob($(`m${place}`).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const start = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const molecule = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)));
  const n = molecule.names.length;
  const [layers, heads] = molecule.shape;
  const end = start + layers * heads * n * n;
  const gates = molecule.gate_scales && bytes.subarray(end);
  return { ...molecule, n, weights: bytes.subarray(start, end), gates };
}

function load(place) {
  if (decoded.size >= KEPT && !decoded.has(place)) decoded.delete(decoded.keys().next().value);
  if (!decoded.has(place)) decoded.set(place, decode(place));
  return decoded.get(place);
}

// The mean over the chosen layers and heads (null = all of them) of numbers of `size` each.
function mean(bytes, scales, size, layer, head) {
  const heads = index.heads.length;
  const chosen = [...scales.keys()].filter((at) =>
    [null, Math.floor(at / heads)].includes(layer) && [null, at % heads].includes(head));
  const total = new Float64Array(size);
  for (const at of chosen) {
    for (let k = 0; k < size; k++) total[k] += scales[at] / 255 / chosen.length * bytes[at * size + k];
  }
  return total;
}

function largest(values, count) {
  return [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, count);
}
