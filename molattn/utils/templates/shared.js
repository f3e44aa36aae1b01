// Shared by the served page and the page of explanations: elements, numbers as text, and announcements.
export const MINUS = "\u2212";

export const $ = (id) => document.getElementById(id);

// An element with attributes (true = without a value; null and false = left out) and listeners (`on`).
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  const { on = {}, ...others } = attributes;
  for (const [event, act] of Object.entries(on)) made.addEventListener(event, act);
  for (const [key, value] of Object.entries(others)) {
    if (key.startsWith("aria-")) made.setAttribute(key, value);
    else if (value !== false && value != null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== false && child != null));
  return made;
}

export const button = (text, act, attributes = {}) =>
  element("button", { type: "button", on: { click: act }, ...attributes }, text);

export function number(value, digits = 3) {
  if (value == null || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5)
    ? size.toExponential(digits - 1)
    : size.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size || 1))));
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
}

// The expected error of a value: a factor, if the model learned the logarithm; see expected_factor in Python.
export const errorText = (error, value, isLogarithm) =>
  (isLogarithm ? `a factor of ${number(Math.exp(Math.asinh(error / value)))}` : `\u00b1${number(error)}`);

export const signed = (value) => (value > 0 && Number(number(value)) !== 0 ? "+" : "") + number(value);

export const count = (value) => value.toLocaleString("en-US");

export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 1) return "< 1%";
  if (value > 99 && value < 100) return "> 99%";
  return `${Math.round(value)}%`;
}

// SVG text as an image, in which it can do nothing but be seen.
export const picture = (svg, label) =>
  element("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}`, alt: label });

// Says something to screen readers.
export const announce = (text) => { $("announce").textContent = text; };

export function debounced(act, delay) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), delay);
  };
}
