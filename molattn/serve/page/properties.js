// What the page says of a property: its name, its value in words, and its place among molecules.
import { element } from "./dom.js";
import { MINUS, count, number, ordinal, percent, percentile, plural, signed } from "./numbers.js";

const OTHERS = "Properties";

export const titleOf = (task) => task.card?.title ?? task.name;

const groupOf = (task) => task.card?.category || OTHERS;

// Groups in the order of their first property: [[name, tasks], ...].
export function groups(tasks) {
  const found = new Map();
  for (const task of tasks) {
    const name = groupOf(task);
    found.set(name, [...(found.get(name) ?? []), task]);
  }
  return [...found];
}

export const isNumber = (task) => task.kind === "regression";

// A unit as it is printed: uL/10^6 as µL/10⁶.
const typeset = (unit) => unit.replace(/\bu(?=[LMgm])/g, "\u00b5")
  .replace(/\^(-?\d+)/g, (_, power) => power.replace(/./g, (digit) => "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"["-0123456789".indexOf(digit)]));

export const unitOf = (task) => typeset(task.unit || task.card?.unit || "");
const lastClass = (task) => task.classes.at(-1);
const isYesNo = (task) => task.classes.length === 2 && task.classes[0] === "0" && task.classes[1] === "1";

// A class in words: classes 0 and 1 are no and yes.
export const className = (task, name) => (isYesNo(task) ? (name === "1" ? "yes" : "no") : name);

// The number that is sorted, filtered and drawn: the value, or a probability.
export function quantity(task, answer) {
  const given = answer?.predictions?.[task.name];
  if (!given) return null;
  if (isNumber(task)) return given.value;
  return given.probabilities[task.kind === "binary" ? lastClass(task) : given.class] ?? null;
}

export function valueText(task, answer) {
  const given = answer?.predictions?.[task.name];
  if (!given) return { main: "-", unit: "", word: "" };
  if (isNumber(task)) return { main: number(given.value), unit: unitOf(task), word: wordOf(task, given.value) };
  const share = quantity(task, answer);
  if (isYesNo(task)) return { main: percent(share), unit: "", word: wordOf(task, share) || className(task, given.class) };
  return task.kind === "binary"
    ? { main: percent(share), unit: lastClass(task), word: wordOf(task, share) || given.class }
    : { main: given.class, unit: percent(share), word: "" };
}

export function intervalText(task, answer) {
  const given = answer?.predictions?.[task.name];
  if (!given || !isNumber(task) || given.low === null || given.low === undefined) return "";
  return `${number(given.low)} to ${number(given.high)}`;
}

// Whether the model has learned this property from nothing like the molecule.
export const isBeyond = (task, answer) => answer?.predictions?.[task.name]?.in_domain === false;

// The words of the threshold that a value is in.
function wordOf(task, value) {
  for (const { low, high, text } of task.card?.thresholds ?? []) {
    if (low === null && high === null) continue;
    if ((low === null || value >= low) && (high === null || value < high)) return text;
  }
  return "";
}

export const thresholdText = ({ low, high, text, source }, unit) => {
  const value = (end) => `${number(end)}${unit && ` ${unit}`}`;
  const words = source ? `${text} (${source})` : text;
  if (low === null) return high === null ? words : `below ${value(high)}: ${words}`;
  return `${high === null ? `${value(low)} and above` : `${number(low)} to ${value(high)}`}: ${words}`;
};

// The molecules that values are compared with: those of training, or the reference set.
export function compared(task, against) {
  const { training, reference } = task;
  if (against === "reference" && reference) return { quantiles: reference.quantiles, name: reference.name };
  const size = training?.count ? `${count(training.count)} ` : "";
  return { quantiles: training?.quantiles ?? null, name: `${size}training molecules` };
}

// A place from 0 to 100 on the bar of a property; null if there is none.
function placeOf(task, value, quantiles) {
  if (value === null || value === undefined) return null;
  if (!isNumber(task)) return 100 * value;
  return quantiles ? percentile(value, quantiles) : null;
}

function placeText(value, quantiles) {
  const place = percentile(value, quantiles);
  if (place <= 0.5) return "at the lower end";
  return place >= 99.5 ? "at the upper end" : `${ordinal(place)} percentile`;
}

// The share of the training molecules that are of the last class.
function baseRate(task) {
  const counts = task.training?.class_counts;
  if (!counts || task.kind !== "binary") return null;
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  return total ? (counts[lastClass(task)] ?? 0) / total : null;
}

// The words beside a bar, and of which molecules they are.
export function standing(task, answer, against) {
  const value = quantity(task, answer);
  const { quantiles, name } = compared(task, against);
  const nothing = { text: "", of: "" };
  if (value === null || task.kind === "multiclass") return nothing;
  if (quantiles && (isNumber(task) || against === "reference")) {
    return { text: placeText(value, quantiles), of: ` of ${name}` };
  }
  const rate = isNumber(task) ? null : baseRate(task);
  if (rate === null) return nothing;
  return { text: `training: ${percent(rate)}${isYesNo(task) ? " yes" : ""}`, of: ` of ${name}` };
}

function bar(kind, ...marks) {
  return element("div", { class: `bar ${kind}`, "aria-hidden": "true" }, ...marks);
}

function mark(name, place, end = null) {
  const made = element("i", { class: name });
  const [low, high] = end === null || place < end ? [place, end] : [end, place];
  made.style.left = `${low}%`;
  if (high !== null) made.style.width = `${high - low}%`;
  return made;
}

// The bar of a property: a scale of percentiles with the quartiles, or of probability. `before`,
// an answer too, is where the value came from.
export function barOf(task, answer, against, before = null) {
  const { quantiles } = compared(task, against);
  const place = placeOf(task, quantity(task, answer), quantiles);
  const from = before && placeOf(task, quantity(task, before), quantiles);
  if (place === null) return bar("none");
  const marks = [];
  if (isNumber(task)) {
    const given = answer.predictions[task.name];
    if (given.low !== null && given.low !== undefined) {
      marks.push(mark("band", placeOf(task, given.low, quantiles), placeOf(task, given.high, quantiles)));
    }
    const ends = (task.card?.thresholds ?? []).flatMap(({ low, high }) => [low, high]);
    for (const end of new Set(ends.filter((one) => one !== null))) {
      marks.push(mark("limit", placeOf(task, end, quantiles)));
    }
  } else {
    marks.push(mark("fill", 0, place));
    const rate = baseRate(task);
    if (rate !== null) marks.push(mark("limit", 100 * rate));
  }
  if (from !== null && from !== undefined) marks.push(mark("path", from, place), mark("before", from));
  marks.push(mark("here", place));
  return bar(isNumber(task) ? "spread" : "share", ...marks);
}

// How a value moved: the text of the difference, and how far on the bar (from 0 to 100).
export function change(task, before, after, against) {
  const [from, to] = [quantity(task, before), quantity(task, after)];
  if (from === null || to === null) return { text: "", size: 0 };
  if (task.kind === "multiclass") {
    const [a, b] = [before, after].map((one) => one.predictions[task.name].class);
    return a === b ? { text: "same class", size: 0 } : { text: `${a} to ${b}`, size: 100 };
  }
  if (!isNumber(task)) {
    const points = Math.round(100 * to) - Math.round(100 * from);
    return { text: points ? `${points > 0 ? "+" : MINUS}${plural(Math.abs(points), "point")}` : "no change", size: 100 * (to - from) };
  }
  const { quantiles } = compared(task, against);
  const size = quantiles ? placeOf(task, to, quantiles) - placeOf(task, from, quantiles) : Math.sign(to - from);
  const text = signed(to - from);
  return { text: Number(number(to - from).replace(MINUS, "-")) === 0 ? "no change" : text, size };
}
