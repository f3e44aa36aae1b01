// What is asked: a drawing, text, or a file; as a table that the server reads.
import { $, button, debounced, element } from "./shared.js";
import { openEditor } from "./editor.js";

const CSV = "text/csv";
const SMI = "chemical/x-daylight-smiles";
const SDF = "chemical/x-mdl-sdfile";
const TSV = "text/tab-separated-values";
const PARQUET = "application/vnd.apache.parquet";
export const TYPES = { csv: CSV, tsv: TSV, tab: TSV, parquet: PARQUET, pq: PARQUET, sdf: SDF, sd: SDF, mol: SDF, smi: SMI,
  smiles: SMI, ism: SMI, txt: SMI, xlsx: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" };
const HEADER = /(^|[,;\t])\s*"?((canonical|isomeric)?[ _]?smiles|structure)"?\s*([,;\t]|$)/i; // of a table
const LONGEST = 4000; // characters of text in an address

const EXAMPLES = {
  "Aspirin": "CC(=O)Oc1ccccc1C(=O)O aspirin",
  "Ten drugs": `CC(=O)Oc1ccccc1C(=O)O aspirin
CC(=O)Nc1ccc(O)cc1 paracetamol
CC(C)Cc1ccc(cc1)C(C)C(=O)O ibuprofen
Cn1c(=O)c2c(ncn2C)n(C)c1=O caffeine
CN1C(=O)CN=C(c2ccccc2)c2cc(Cl)ccc21 diazepam
CC(C)NCC(O)COc1cccc2ccccc12 propranolol
CN(C)C(=N)NC(=N)N metformin
CC(=O)CC(c1ccccc1)c1c(O)c2ccccc2oc1=O warfarin
CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(ccc1OCC)S(=O)(=O)N1CCN(C)CC1 sildenafil
COc1ccc2[nH]c(S(=O)Cc3ncc(C)c(OC)c3C)nc2c1 omeprazole`,
};

export class Input {
  // `run` is called with { body, type, name } when it is to be predicted, `complain` with a text;
  // `text` is what the page begins with.
  constructor(run, complain, text) {
    this.run = run;
    this.complain = (text) => { this.forget(); complain(text); };
    this.text = $("smiles");
    this.text.value = text;
    this.file = null; // the file that was read last, until the text is changed
    $("examples").append(...Object.entries(EXAMPLES).map(([name, text]) => button(name, () => this.open(text), { class: "quiet" })));
    $("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.listenToText();
    $("choose").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => {
      if ($("file").files.length) this.take($("file").files[0]);
      $("file").value = "";
    });
    this.listenToDrops();
    $("drawing").open = matchMedia("(min-width: 46.01rem)").matches;
    $("drawing").addEventListener("toggle", () => this.openEditor());
    this.openEditor();
  }

  listenToText() {
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit();
    });
    // Browsers take seconds to insert thousands of lines; to set them takes none.
    this.text.addEventListener("paste", (event) => {
      const text = event.clipboardData.getData("text/plain");
      if (text.length < 5000) return;
      event.preventDefault();
      this.text.setRangeText(text.replaceAll("\r\n", "\n"), this.text.selectionStart, this.text.selectionEnd, "end");
    });
    this.text.addEventListener("input", () => this.forget());
    const follow = debounced(() => this.toEditor(), 300);
    for (const event of ["input", "click", "keyup"]) this.text.addEventListener(event, follow);
  }

  listenToDrops() {
    const page = document.documentElement;
    const mark = (on) => document.body.classList.toggle("dropping", on);
    page.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      mark(true);
    });
    page.addEventListener("dragleave", (event) => event.relatedTarget ?? mark(false));
    page.addEventListener("drop", (event) => {
      mark(false);
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.take(event.dataTransfer.files[0]);
    });
  }

  // The editor shows the line of the text with the cursor.
  get line() {
    const { value, selectionStart } = this.text;
    const at = value.slice(0, selectionStart).split("\n").length - 1;
    const lines = value.split("\n");
    return { lines, at, smiles: lines[at].trim().split(/\s/)[0] };
  }

  async openEditor() {
    if (!$("drawing").open) return;
    this.opening ??= openEditor($("editor"), this.drawn = this.line.smiles, (smiles) => this.fromEditor(smiles));
    this.editor = await this.opening;
    this.toEditor(); // the text may have changed since
  }

  toEditor() {
    if (!this.editor || this.text.value.length > 100_000) return;
    const { smiles } = this.line;
    if (smiles === this.drawn) return;
    this.drawn = smiles;
    this.editor.show(smiles);
  }

  fromEditor(smiles) {
    const { lines, at } = this.line;
    lines[at] = this.drawn = smiles; // a name is of the molecule as it was
    this.setText(lines.join("\n"));
    const end = lines.slice(0, at + 1).join("\n").length;
    this.text.setSelectionRange(end, end);
  }

  setText(text) {
    this.text.value = text;
    this.forget();
  }

  // The text is what is predicted next, not a file.
  forget() {
    this.file = null;
    $("chosen").textContent = "";
    $("which").replaceChildren();
  }

  take(file) {
    const ending = file.name.toLowerCase().replace(/\.(gz|zst)$/, "").split(".").at(-1);
    if (TYPES[ending]) this.startFile({ body: file, type: TYPES[ending], name: file.name });
    else this.complain(`Got ${file.name}, expected a file ending in .csv, .tsv, .xlsx, .parquet, .smi, .txt or .sdf.`);
  }

  startFile(asked) {
    this.file = asked;
    $("chosen").textContent = asked.name;
    $("which").replaceChildren();
    this.run(asked);
  }

  // A table without a column `smiles`: which one holds the SMILES?
  askColumn(asked) {
    const field = element("input", { id: "column", type: "text", spellcheck: "false" });
    $("which").replaceChildren(element("label", { for: "column" }, "Which column holds the SMILES?"), field,
      button("Use it", () => this.startFile({ ...asked, column: field.value.trim() })));
    field.focus();
  }

  submit() {
    const text = this.text.value;
    if (this.file) this.run(this.file);
    else if (text.trim()) {
      const given = $("extra").hidden && text.length < LONGEST ? text.trim() : ""; // for the address of the result
      this.run({ ...this.tableOf(text), name: "the text", text: given });
    }
    else {
      this.complain("Draw a molecule, or write its SMILES, first.");
      this.text.focus();
    }
  }

  // A pasted table as it is, of which the server finds the SMILES; SMILES and names with what the model needs besides the structure.
  tableOf(text) {
    const fields = [...$("extra").querySelectorAll("input")];
    if (HEADER.test(text.split("\n", 1)[0]) && /\n./.test(text)) return { body: text, type: CSV };
    if (!fields.length) return { body: text, type: SMI };
    const molecules = text.split("\n").filter((line) => line.trim()).map((line) => /^\s*(\S+)\s*(.*)$/.exec(line).slice(1));
    const rows = [["smiles", "name", ...fields.map(({ name }) => name)],
      ...molecules.map((own) => [...own, ...fields.map(({ value }) => value.trim())])];
    const cell = (one) => `"${one.replaceAll('"', '""')}"`;
    return { body: rows.map((row) => row.map(cell).join(",")).join("\n"), type: CSV };
  }

  // Predicts the text of an address.
  open(text) {
    this.setText(text);
    this.toEditor();
    this.submit();
  }

  // Fields for what the chosen model needs besides the structure.
  showExtra({ partner, features }) {
    const field = (name, attributes) => element("label", {}, element("span", {}, name), element("input", { name, ...attributes }));
    const fields = features.map((name) => field(name, { type: "number", step: "any" }));
    if (partner !== null) {
      fields.unshift(field(partner, { type: "text", placeholder: "SMILES of the second molecule", spellcheck: "false" }));
    }
    $("extra").hidden = !fields.length;
    $("extra").replaceChildren(element("legend", {}, "The model also needs"), ...fields);
  }
}
