// Numbers as text, and where a number lies among others.
export const MINUS = "\u2212";

export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5)
    ? size.toExponential(digits - 1)
    : size.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size || 1))));
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
}

export const signed = (value) => (value > 0 && Number(number(value)) !== 0 ? "+" : "") + number(value);

export const count = (value) => value.toLocaleString("en-US");

export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 1) return "< 1%";
  if (value > 99 && value < 100) return "> 99%";
  return `${Math.round(value)}%`;
}

export function ordinal(value) {
  const whole = Math.round(value);
  const tens = whole % 100;
  const ending = tens > 10 && tens < 14 ? "th" : ["th", "st", "nd", "rd"][whole % 10] ?? "th";
  return `${whole}${ending}`;
}

// The percentile of a value from the 0th to the 100th percentile of others; the middle of ties.
export function percentile(value, quantiles) {
  const last = quantiles.length - 1;
  const place = (before) => {
    let low = 0;
    let high = quantiles.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(quantiles[middle])) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const first = place((one) => one < value);
  const after = place((one) => one <= value);
  if (first !== after) return (100 * (first + after - 1)) / 2 / last;
  if (!first) return 0;
  if (first > last) return 100;
  const [a, b] = [quantiles[first - 1], quantiles[first]];
  return (100 * (first - 1 + (value - a) / (b - a))) / last;
}

export function duration(seconds) {
  const whole = Math.max(1, Math.ceil(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
