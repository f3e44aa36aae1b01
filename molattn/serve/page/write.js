// Results as CSV, with the columns of `molattn predict`, and as SDF.
import { save } from "./dom.js";

function columnsOf(task) {
  const columns = [[task.name, (given) => (task.kind === "regression" ? given.value : given.class)]];
  if (task.kind === "regression") {
    if (task.has_interval) {
      columns.push([`${task.name}_low`, (given) => given.low], [`${task.name}_high`, (given) => given.high]);
    }
  } else if (task.kind === "binary") {
    columns.push([`${task.name}_probability`, (given) => given.probabilities[task.classes[1]]]);
  } else {
    columns.push(...task.classes.map((name) =>
      [`${task.name}_probability_${name}`, (given) => given.probabilities[name]]));
  }
  return columns.map(([name, read]) => [name, (answer) => {
    const given = answer.predictions?.[task.name];
    return given ? read(given) ?? "" : "";
  }]);
}

const columnsOfAll = (model) => [
  ...model.tasks.flatMap(columnsOf),
  ["training_similarity", (answer) => answer.training_similarity ?? ""],
  ["error", (answer) => answer.error ?? ""],
];

const quoted = (cell) => {
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function saveCsv(rows, header, model) {
  const columns = columnsOfAll(model);
  const own = header ?? ["name", "smiles"];
  const lines = [[...own, ...columns.map(([name]) => name)], ...rows.map((row) => [
    ...(header ? header.map((_, at) => row.cells[at] ?? "") : [row.name, row.answer.smiles ?? row.smiles]),
    ...columns.map(([, read]) => read(row.answer)),
  ])];
  save("predictions.csv", lines.map((line) => `${line.map(quoted).join(",")}\n`).join(""), "text/csv");
}

// A molecule that was read from an SDF keeps its record; others are laid out by OpenChemLib. One
// that cannot be read has an empty record, so that no row is missing.
export async function saveSdf(rows, model) {
  const { Molecule } = await import("./vendor/openchemlib/openchemlib.js");
  const columns = columnsOfAll(model);
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
