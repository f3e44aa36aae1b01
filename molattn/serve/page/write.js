// Results as CSV, with the columns of `molattn predict`, and as SDF.
import { save } from "./dom.js";

const NUMBER = String.raw`[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?%?`;
// What a spreadsheet takes for a formula; see escape_formula of molattn.data.table.
const FORMULA = new RegExp(String.raw`^(?!${NUMBER}$)[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n].`, "s");

function columnsOf(task, sample) {
  const columns = [[`${task.name}_predicted`, (given) => (task.kind === "regression" ? given.value : given.class)]];
  if (task.kind === "regression") {
    if (task.has_interval) {
      columns.push([`${task.name}_low`, (given) => given.low], [`${task.name}_high`, (given) => given.high]);
    }
  } else if (task.kind === "binary") {
    const [, positive] = task.classes;
    const name = task.classes.join() === "0,1" ? "" : `_${positive}`;
    columns.push([`${task.name}_probability${name}`, (given) => given.probabilities[positive]]);
  } else {
    columns.push(...task.classes.map((name) =>
      [`${task.name}_probability_${name}`, (given) => given.probabilities[name]]));
  }
  for (const name of ["std", "training_similarity"]) {
    if (name in (sample?.predictions[task.name] ?? {})) columns.push([`${task.name}_${name}`, (given) => given[name]]);
  }
  return columns.map(([name, read]) => [name, (answer) => {
    const given = answer.predictions?.[task.name];
    return given ? read(given) ?? "" : "";
  }]);
}

function columnsOfAll(model, rows) {
  const sample = rows.find(({ answer }) => answer.error === null)?.answer;
  return [
    ...model.tasks.flatMap((task) => columnsOf(task, sample)),
    ["training_similarity", (answer) => answer.training_similarity ?? ""],
    ...(sample && "standardized_smiles" in sample
      ? [["standardized_smiles", (answer) => answer.standardized_smiles ?? ""]] : []),
    ["error", (answer) => answer.error ?? ""],
  ];
}

const quoted = (cell) => {
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const escaped = (cell) => (typeof cell === "string" && FORMULA.test(cell) ? `'${cell}` : cell);

export function saveCsv(rows, header, model) {
  const columns = columnsOfAll(model, rows);
  const width = rows.reduce((most, { cells }) => Math.max(most, cells?.length ?? 0), 0);
  const names = header ? [...header, ...Array(Math.max(0, width - header.length)).fill("")] : ["name", "smiles"];
  const own = names.length;
  for (let [name] of columns) {
    while (names.includes(name)) name += "_";
    names.push(name);
  }
  const lines = [names.map(escaped), ...rows.map((row) => [
    ...names.slice(0, own).map((_, at) => {
      const cell = header ? row.cells[at] ?? "" : at ? row.answer.smiles ?? row.smiles : row.name;
      return row.answer.error === null && cell === row.smiles ? cell : escaped(cell);
    }),
    ...columns.map(([, read]) => escaped(read(row.answer))),
  ])];
  save("predictions.csv", lines.map((line) => `${line.map(quoted).join(",")}\n`).join(""), "text/csv");
}

// A molecule that was read from an SDF keeps its record; others are laid out by OpenChemLib. One
// that cannot be read has an empty record, so that no row is missing.
export async function saveSdf(rows, model) {
  const { Molecule } = await import("./vendor/openchemlib/openchemlib.js");
  const names = ["smiles"];
  const columns = columnsOfAll(model, rows).map(([name, read]) => { // named as by SDFWriter of molattn.data.table
    let clean = name.replaceAll(/[<>\s]+/g, " ").trim() || "column";
    while (names.includes(clean)) clean += "_";
    names.push(clean);
    return [clean, read];
  });
  const records = rows.map((row) => {
    const smiles = row.answer.smiles ?? row.smiles;
    const block = row.block === null ? molBlock(Molecule, smiles, row.name)
      : row.block.slice(0, row.block.lastIndexOf("$$$$")).trimEnd();
    const fields = [...(row.block === null ? [["smiles", () => smiles]] : []), ...columns];
    const end = /^>/m.test(block) ? "\n\n" : "\n"; // a field ends with a blank line
    return `${block}${end}${fields.map(([name, read]) => field(name, read(row.answer))).join("")}$$$$\n`;
  });
  save("predictions.sdf", records.join(""), "chemical/x-mdl-sdfile");
}

function field(name, value) {
  return `>  <${name}>\n${String(value).replaceAll(/\s+/g, " ")}\n\n`;
}

function molBlock(Molecule, smiles, name) {
  const title = name.replaceAll(/\s+/g, " ").slice(0, 80);
  try {
    const block = Molecule.fromSmiles(smiles).toMolfile();
    return `${title}${block.slice(block.indexOf("\n"))}`.trimEnd();
  } catch {
    return `${title}\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END`;
  }
}
