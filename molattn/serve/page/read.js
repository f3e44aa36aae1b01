// Text, CSV, SMI and SDF as rows: { place, name, smiles, partner, features, cells, block, answer }.
const SMILES_NAMES = ["smiles", "canonical_smiles", "isomeric_smiles", "structure", "molecule", "mol", "drug"];

export class NoRows extends Error {}

const row = (place, given) =>
  ({ place, name: "", smiles: "", partner: null, features: {}, cells: null, block: null, answer: null, ...given });

// A pasted text: a table if its first line is a header with a column of SMILES, else SMILES and names.
export function readText(text, model) {
  const first = text.slice(0, text.search(/\r?\n|$/));
  for (const mark of [",", "\t", ";"]) {
    const cells = cellsOf(first, mark)[0] ?? [];
    if (cells.some((cell) => SMILES_NAMES.includes(cell.trim().toLowerCase())) && /\n./.test(text)) {
      return readTable(text, mark, model);
    }
  }
  const rows = text.split(/\r?\n/).filter((line) => line.trim()).map((line, at) => {
    const [, smiles, rest] = /^(\S+)\s*(.*)$/.exec(line.trim());
    // |...| belongs to the SMILES (CXSMILES), anything else is a name.
    return row(at + 1, rest.startsWith("|") ? { smiles: `${smiles} ${rest}` } : { smiles, name: rest });
  });
  return { rows, header: null };
}

// `column` is the place of the SMILES; without it a column of a usual name is taken.
export function readTable(text, mark, model, column = null) {
  const [header = [], ...lines] = cellsOf(text.replace(/^\ufeff/, ""), mark);
  const names = header.map((cell) => cell.trim());
  const place = column ?? names.findIndex((name) => SMILES_NAMES.includes(name.toLowerCase()));
  if (place < 0) return { rows: [], header: names, mark, asks: true };
  const partner = model.partner === null ? -1 : names.indexOf(model.partner);
  const title = names.findIndex((name) => ["name", "id", "title", "compound"].includes(name.toLowerCase()));
  const rows = lines.filter((cells) => cells.length > 1 || cells[0]?.trim() || names.length === 1)
    .map((cells, at) => row(at + 1, {
      smiles: cells[place] ?? "",
      name: title < 0 || title === place ? "" : cells[title] ?? "",
      partner: model.partner === null ? null : cells[partner] ?? "",
      features: Object.fromEntries(model.features.map((name) => {
        const text = cells[names.indexOf(name)]?.trim();
        return [name, text && Number.isFinite(Number(text)) ? Number(text) : null];
      })),
      cells,
    }));
  return { rows, header: names, mark };
}

export function readSdf(text) {
  const rows = text.split(/^\$\$\$\$[^\n]*\n?/m).filter((block) => block.trim()).map((block, at) =>
    row(at + 1, { name: block.slice(0, block.search(/\r?\n|$/)).trim(), block: `${block.trimEnd()}\n\n$$$$\n` }));
  return { rows, header: null };
}

// The text of a file that is not UTF-8 is that of Windows, which `encoding` tells.
export async function readFile(file, model) {
  let name = file.name.toLowerCase();
  let stream = file.stream();
  if (name.endsWith(".gz")) {
    name = name.slice(0, -3);
    stream = stream.pipeThrough(new DecompressionStream("gzip"));
  }
  const [text, encoding] = decoded(await new Response(stream).arrayBuffer());
  return { ...rowsOf(text, name, file.name, model), text, encoding };
}

function decoded(bytes) {
  try {
    return [new TextDecoder("utf-8", { fatal: true }).decode(bytes), null];
  } catch {
    const mark = String(new Uint8Array(bytes, 0, Math.min(2, bytes.byteLength)));
    const name = { "255,254": "UTF-16LE", "254,255": "UTF-16BE" }[mark] ?? "Windows-1252";
    return [new TextDecoder(name).decode(bytes), name];
  }
}

function rowsOf(text, name, shown, model) {
  const ending = name.slice(name.lastIndexOf(".") + 1);
  if (["sdf", "sd", "mol"].includes(ending)) {
    if (model.partner !== null || model.features.length) {
      throw new NoRows("The model needs more than a structure: use a CSV file with its columns.");
    }
    return readSdf(text);
  }
  if (ending === "csv") {
    const first = text.slice(0, text.search(/\n|$/));
    return readTable(text, first.includes(",") || !/[;\t]/.test(first) ? "," : first.includes(";") ? ";" : "\t", model);
  }
  if (ending === "tsv") return readTable(text, "\t", model);
  if (["smi", "smiles", "txt"].includes(ending)) return readText(text, model);
  throw new NoRows(`Got ${shown}, expected a file ending in .csv, .tsv, .smi, .txt or .sdf (also .gz).`);
}

// Rows of cells; quoted cells may contain the mark, quotes ("") and line breaks.
function cellsOf(text, mark) {
  const rows = [];
  let cells = [];
  let at = 0;
  while (at < text.length) {
    let cell = "";
    if (text[at] === '"') {
      for (at++; at < text.length; at++) {
        if (text[at] !== '"') cell += text[at];
        else if (text[at + 1] === '"') cell += text[at++];
        else break;
      }
      at++;
    }
    const start = at;
    while (at < text.length && text[at] !== mark && text[at] !== "\n" && text[at] !== "\r") at++;
    cells.push(cell + text.slice(start, at));
    if (text[at] === mark) {
      at++;
      if (at === text.length) cells.push("");
      continue;
    }
    if (text[at] === "\r" && text[at + 1] === "\n") at++;
    at++;
    rows.push(cells);
    cells = [];
  }
  if (cells.length) rows.push(cells);
  return rows;
}
