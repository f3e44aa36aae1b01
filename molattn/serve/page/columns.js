// The columns of a table of molecules, for plots and files: predictions, the score, and those of the input.
import { className, groups, isNumber, quantity, titleOf, unitOf } from "./properties.js";

const MOST_CATEGORIES = 8; // colors

const cellsOf = (row, at) => row.answer.cells?.[at]?.trim() ?? "";

// A column is { key, title, group, of }: `of` a row is a number, or a text where `isText`; null = there is none.
const predicted = (task) => {
  const share = (row) => {
    const value = quantity(task, row.answer);
    return value === null ? null : 100 * value;
  };
  const unit = isNumber(task) ? unitOf(task) : task.kind === "multiclass" ? "% of the predicted class" : "%";
  return { key: `=${task.name}`, group: "Predicted", title: `${titleOf(task)}${unit && ` (${unit})`}`,
    of: isNumber(task) ? (row) => quantity(task, row.answer) : share };
};

const classes = (task) => ({ key: `class ${task.name}`, group: "Predicted classes", title: titleOf(task), isText: true,
  of: (row) => {
    const name = row.answer.predictions?.[task.name]?.class;
    return name === undefined ? null : className(task, name);
  } });

// A column of the input, if nine in ten of its cells are numbers, or it has a few texts; else null.
function ownColumn(title, at, rows) {
  const texts = rows.map((row) => cellsOf(row, at)).filter(Boolean);
  const numbers = texts.filter((text) => Number.isFinite(Number(text)));
  const column = { key: `own ${at}`, group: "Your columns", title };
  if (texts.length && numbers.length >= 0.9 * texts.length) {
    const number = (text) => (text && Number.isFinite(Number(text)) ? Number(text) : null);
    return { ...column, of: (row) => number(cellsOf(row, at)) };
  }
  const categories = new Set(texts).size;
  const isFew = categories > 1 && categories <= Math.min(MOST_CATEGORIES, texts.length / 2);
  return isFew ? { ...column, isText: true, of: (row) => cellsOf(row, at) || null } : null;
}

export function columnsOf({ model, own, score }, rows) {
  const tasks = groups(model.tasks).flatMap(([, ours]) => ours);
  return [
    ...(score.parts.length ? [{ key: "score", group: "Of the table", title: "Score", of: (row) => score.of(row.answer) }] : []),
    ...tasks.map(predicted),
    ...tasks.filter((task) => !isNumber(task)).map(classes),
    ...own.map((title, at) => ownColumn(title, at, rows)).filter(Boolean),
    { key: "similarity", group: "Of the table", title: "Similarity to training", of: (row) => row.answer.training_similarity },
    { key: "row", group: "Of the table", title: "Row", of: (row) => row.place },
  ];
}

const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const csv = (lines) => lines.map((cells) => `${cells.map(cell).join(",") || '""'}\n`).join("");

// Rows as CSV, with the columns of `molattn predict` and, after those of the input, the score; `blocks` come last.
export function csvOf({ columns, own, score }, rows, blocks = false) {
  let name = "score";
  while (columns.includes(name)) name += "_";
  const line = (cells, value, block) => [...cells.slice(0, own.length), ...(score.parts.length ? [value] : []),
    ...cells.slice(own.length), ...(blocks ? [block] : [])];
  return csv([line(columns, name, "block"), ...rows.map(({ answer }) =>
    line(answer.cells, score.of(answer)?.toPrecision(4) ?? "", answer.block ?? ""))]);
}
