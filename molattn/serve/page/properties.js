// What the page says of a property: its name, its value in words, and its place among molecules.
import { MINUS, count, element, errorText, number, percent, plural, signed } from "./shared.js";

export const titleOf = (task) => task.card?.title ?? task.name;

// Groups in the order of their first property: [[name, tasks], ...].
export function groups(tasks) {
  const found = new Map();
  for (const task of tasks) {
    const name = task.card?.category || "Properties";
    found.set(name, [...(found.get(name) ?? []), task]);
  }
  return [...found];
}

export const isNumber = (task) => task.kind === "regression";

// A unit as it is printed: uL/10^6 as µL/10⁶.
const POWERS = "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
export const unitOf = (task) => (task.unit || task.card?.unit || "").replace(/\bu(?=[LMgm])/g, "\u00b5")
  .replace(/\^(-?\d+)/g, (_, power) => power.replace(/./g, (digit) => POWERS["-0123456789".indexOf(digit)]));

const lastClass = (task) => task.classes.at(-1);
const isYesNo = (task) => task.classes.join() === "0,1";

// A class in words: classes 0 and 1 are no and yes.
export const className = (task, name) => (isYesNo(task) ? (name === "1" ? "yes" : "no") : name);

// The number that is sorted, filtered and drawn: the value, or a probability.
export function quantity(task, answer) {
  const given = answer.predictions?.[task.name];
  if (!given) return null;
  if (isNumber(task)) return given.value;
  return given.probabilities[task.kind === "binary" ? lastClass(task) : given.class];
}

export function valueText(task, answer) {
  const given = answer.predictions[task.name];
  const value = quantity(task, answer);
  if (isNumber(task)) return { main: number(value), unit: unitOf(task), word: wordOf(task, value) };
  if (task.kind === "multiclass") return { main: given.class, unit: percent(value), word: "" };
  const word = wordOf(task, value) || className(task, given.class);
  return { main: percent(value), unit: isYesNo(task) ? "" : lastClass(task), word };
}

export function intervalText(task, answer) {
  const { low, high } = answer.predictions[task.name];
  return low == null ? "" : `${number(low)} to ${number(high)}`;
}

// The grade of a prediction with its expected error in words; empty without a calibration.
export function confidenceText(task, answer) {
  const { confidence, expected_error: error, value } = answer.predictions[task.name] ?? {};
  if (!confidence) return "";
  const size = isNumber(task) ? `expected error ${errorText(error, value, task.is_logarithm)} ${task.is_logarithm ? "" : unitOf(task)}`.trim()
    : `${percent(error)} of such classes are expected to be wrong`;
  return `${confidence} confidence: ${size}`;
}

// The mark of a prediction whose confidence is not high.
export function confidenceTag(task, answer, word = "") {
  const grade = answer.predictions[task.name]?.confidence;
  if (!grade || grade === "high") return null;
  const text = confidenceText(task, answer);
  return element("span", { class: `tag ${grade}`, title: text }, grade, word, element("span", { class: "hidden" }, text.slice(grade.length + word.length)));
}

// The label of a molecule that the model was trained with, marked where it contradicts the prediction; else null.
export function measuredTag(task, answer) {
  const { measured, measured_remark: remark } = answer.predictions[task.name] ?? {};
  if (measured == null) return null;
  const text = isNumber(task) ? number(measured) : measured.split(" / ").map((name) => className(task, name)).join(" / ");
  const place = remark && (isNumber(task) ? ", outside of the interval" : ", predicted otherwise");
  return element("span", { class: `measured ${remark ? "contradicts" : ""}`, title: "The label of this molecule in the training data" },
    `measured ${text}`, place);
}

// The prediction of the parent, where the other one is of the molecule as written; else null.
export function parentTag(task, answer) {
  const value = answer.predictions[task.name]?.of_parent;
  return value == null ? null : element("span", { class: "word", title: "Predicted of the parent, the other value of the molecule as written" },
    `parent ${number(value)}`);
}

// How many predictions of a molecule have each grade: { high: 14, medium: 5, low: 3 }.
export function grades(answer) {
  const found = { high: 0, medium: 0, low: 0 };
  for (const one of Object.values(answer.predictions ?? {})) if (one?.confidence) found[one.confidence] += 1;
  return found;
}
export const isMostlyLow = (answer) => {
  const { high, medium, low } = grades(answer);
  return low > high + medium;
};

const isWithin = ({ low, high }, value) => (low !== null || high !== null) &&
  (low === null || value >= low) && (high === null || value < high);

// The words of the threshold that a value is in.
function wordOf(task, value) {
  return task.card?.thresholds?.find((one) => isWithin(one, value))?.text ?? "";
}

export function thresholdText({ low, high, text, source }, unit) {
  const value = (end) => `${number(end)}${unit && ` ${unit}`}`;
  const words = source ? `${text} (${source})` : text;
  if (low === null) return high === null ? words : `below ${value(high)}: ${words}`;
  return `${high === null ? `${value(low)} and above` : `${number(low)} to ${value(high)}`}: ${words}`;
}

// The molecules that values are compared with: those of training, or the reference set.
function compared({ training, reference }, against) {
  if (against === "reference" && reference) return reference;
  const size = training?.count ? `${count(training.count)} ` : "";
  return { quantiles: training?.quantiles, name: `${size}training molecules` };
}

// The percentile of a value from the 0th to the 100th percentile of others; the middle of ties.
function percentile(value, quantiles) {
  const last = quantiles.length - 1;
  const [below, within] = [quantiles.filter((one) => one < value).length, quantiles.filter((one) => one <= value).length];
  if (below !== within) return (50 * (below + within - 1)) / last;
  if (!below || below > last) return below ? 100 : 0;
  const [a, b] = [quantiles[below - 1], quantiles[below]];
  return (100 * (below - 1 + (value - a) / (b - a))) / last;
}

const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const RULES = new Intl.PluralRules("en", { type: "ordinal" });
const ordinal = (place) => `${Math.round(place)}${ENDINGS[RULES.select(Math.round(place))]}`;

// Which end is desired: "higher", "lower", or empty where it depends.
export const desiredOf = (task) => /^(higher|lower)/.exec(task.card?.direction ?? "")?.[0] ?? "";

// A value as `good` or `poor`, and by which rule; for probabilities the bounds of OptADMET. None of low confidence.
export function verdictOf(task, answer) {
  const value = quantity(task, answer);
  const isLow = answer.predictions?.[task.name]?.confidence === "low";
  if (value === null || isLow || task.kind === "multiclass") return { verdict: "", why: "" };
  if (isNumber(task)) {
    const found = task.card?.thresholds?.filter((one) => one.verdict && isWithin(one, value)) ?? [];
    return found.length ? { verdict: found[0].verdict, why: thresholdText(found[0], unitOf(task)) } : { verdict: "", why: "" };
  }
  const desired = desiredOf(task);
  const share = desired === "lower" ? 1 - value : value;
  const verdict = desired && (share >= 0.7 ? "good" : share <= 0.3 ? "poor" : "");
  return { verdict, why: `${desired} is desired: good and poor by the outer 30% of probability (OptADMET)` };
}

// A place from 0 to 100 on the bar of a property; null if there is none.
function placeOf(task, value, against) {
  if (value === null || !isNumber(task)) return value && 100 * value;
  const { quantiles } = compared(task, against);
  return quantiles ? percentile(value, quantiles) : null;
}

export const placeIn = (task, answer, against) =>
  (task.kind === "multiclass" ? null : placeOf(task, quantity(task, answer), against));

// The share of the training molecules that are of the last class.
function baseRate(task) {
  const counts = task.kind === "binary" && task.training?.class_counts;
  if (!counts) return null;
  return (counts[lastClass(task)] ?? 0) / Object.values(counts).reduce((sum, one) => sum + one);
}

// The words beside a bar, and of which molecules they are.
export function standing(task, answer, against) {
  const { quantiles, name } = compared(task, against);
  const of = ` of ${name}`;
  if (task.kind === "multiclass") return { text: "", of };
  if (quantiles && (isNumber(task) || against === "reference")) {
    const place = percentile(quantity(task, answer), quantiles);
    if (place > 0.5 && place < 99.5) return { text: `${ordinal(place)} percentile`, of };
    return { text: `at the ${place < 50 ? "lower" : "upper"} end`, of };
  }
  const rate = baseRate(task);
  return { text: rate === null ? "" : `training: ${percent(rate)}${isYesNo(task) ? " yes" : ""}`, of };
}

function mark(name, place, end = place) {
  const made = element("i", { class: name });
  made.style.left = `${Math.min(place, end)}%`;
  if (end !== place) made.style.width = `${Math.abs(end - place)}%`;
  return made;
}

// The bar of a property: a scale of percentiles with the quartiles, or of probability. `before`,
// an answer too, is where the value came from.
export function barOf(task, answer, against, before = null) {
  const at = (value) => placeOf(task, value, against);
  const place = at(quantity(task, answer));
  if (place === null) return element("div", { class: "bar none", "aria-hidden": "true" });
  const given = answer.predictions[task.name];
  const limits = isNumber(task)
    ? (task.card?.thresholds ?? []).flatMap(({ low, high }) => [low, high]).filter((end) => end !== null)
    : [baseRate(task)].filter((rate) => rate !== null);
  const from = before && at(quantity(task, before));
  return element("div", { class: `bar ${isNumber(task) ? "spread" : "share"}`, "aria-hidden": "true" },
    isNumber(task) ? given.low != null && mark("band", at(given.low), at(given.high)) : mark("fill", 0, place),
    ...[...new Set(limits)].map((end) => mark("limit", at(end))),
    from !== null && mark("path", from, place),
    from !== null && mark("before", from),
    mark("here", place));
}

// How a value moved: the text of the difference, and how far on the bar (from 0 to 100).
export function change(task, before, after, against) {
  const [from, to] = [quantity(task, before), quantity(task, after)];
  if (task.kind === "multiclass") {
    const [a, b] = [before, after].map((one) => one.predictions[task.name].class);
    return a === b ? { text: "same class", size: 0 } : { text: `${a} to ${b}`, size: 100 };
  }
  if (!isNumber(task)) {
    const points = Math.round(100 * to) - Math.round(100 * from);
    const text = `${points > 0 ? "+" : MINUS}${plural(Math.abs(points), "point")}`;
    return { text: points ? text : "no change", size: 100 * (to - from) };
  }
  const [a, b] = [from, to].map((value) => placeOf(task, value, against));
  const text = signed(to - from);
  return { text: /[1-9]/.test(text) ? text : "no change", size: a === null ? Math.sign(to - from) : b - a };
}
