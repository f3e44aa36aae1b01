// What is asked: a drawing, text, or a file; as a table that the server reads.
import { $, announce, button, debounced, element } from "./dom.js";
import { openEditor, smilesOf } from "./editor.js";

const CSV = "text/csv";
const SMI = "chemical/x-daylight-smiles";
const SDF = "chemical/x-mdl-sdfile";
const TSV = "text/tab-separated-values";
const PARQUET = "application/vnd.apache.parquet";
const XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
export const TYPES = { csv: CSV, tsv: TSV, tab: TSV, xlsx: XLSX, parquet: PARQUET, pq: PARQUET, sdf: SDF, sd: SDF, mol: SDF,
  smi: SMI, smiles: SMI, ism: SMI, txt: SMI };
const HEADER = /(^|[,;\t])\s*"?smiles"?\s*([,;\t]|$)/i; // of a table

const EXAMPLES = [
  ["Aspirin", "CC(=O)Oc1ccccc1C(=O)O aspirin"],
  ["Caffeine", "Cn1c(=O)c2c(ncn2C)n(C)c1=O caffeine"],
  ["Imatinib", "Cc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1Nc1nccc(-c2cccnc2)n1 imatinib"],
  ["Ten drugs", `CC(=O)Oc1ccccc1C(=O)O aspirin
CC(=O)Nc1ccc(O)cc1 paracetamol
CC(C)Cc1ccc(cc1)C(C)C(=O)O ibuprofen
Cn1c(=O)c2c(ncn2C)n(C)c1=O caffeine
CN1C(=O)CN=C(c2ccccc2)c2cc(Cl)ccc21 diazepam
CC(C)NCC(O)COc1cccc2ccccc12 propranolol
CN(C)C(=N)NC(=N)N metformin
CC(=O)CC(c1ccccc1)c1c(O)c2ccccc2oc1=O warfarin
CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(ccc1OCC)S(=O)(=O)N1CCN(C)CC1 sildenafil
Clc1cccc(Cl)c1 1,3-dichlorobenzene`],
];

export class Input {
  // `run` is called with { body, type, name } when it is to be predicted, `complain` with a text.
  constructor(context, run, complain) {
    this.context = context;
    this.run = run;
    this.complain = (text) => { this.forget(); complain(text); };
    this.text = $("smiles");
    this.chosen = null; // the file that was read last, until the text is changed
    $("examples").append(...EXAMPLES.map(([name, text]) => button(name, () => {
      this.text.value = text;
      this.forget();
      this.toEditor();
      this.submit();
    }, { class: "quiet" })));
    $("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
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
    const drawn = debounced(() => this.toEditor(), 300);
    for (const event of ["input", "click", "keyup"]) this.text.addEventListener(event, drawn);
    $("choose").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => {
      if ($("file").files.length) this.take($("file").files[0]);
      $("file").value = "";
    });
    this.drops();
    this.draws();
  }

  draws() {
    const toggle = $("draw");
    const open = () => {
      this.opening ??= openEditor($("editor"), this.line.smiles, () => this.fromEditor())
        .then((opened) => { this.editor = opened; });
      return this.opening;
    };
    toggle.addEventListener("click", () => {
      const opens = toggle.getAttribute("aria-expanded") !== "true";
      toggle.setAttribute("aria-expanded", opens);
      $("drawing").classList.toggle("opened", opens);
      if (opens) open();
    });
    if (matchMedia("(min-width: 46.01rem)").matches) open();
  }

  // The line of the text that the editor shows: the one with the cursor.
  get line() {
    const { value, selectionStart } = this.text;
    const lines = value.split("\n");
    const at = Math.min(lines.length, value.slice(0, selectionStart).split("\n").length) - 1;
    const [, smiles = "", rest = ""] = /^\s*(\S*)(.*)$/.exec(lines[at]) ?? [];
    return { lines, at, smiles, rest };
  }

  toEditor() {
    const { smiles } = this.line;
    if (!this.editor || smiles === this.drawn || this.text.value.length > 100_000) return;
    this.drawn = smiles;
    this.editor.show(smiles);
  }

  fromEditor() {
    const { lines, at } = this.line;
    this.drawn = smilesOf(this.editor);
    lines[at] = this.drawn; // a name is of the molecule as it was
    this.forget();
    this.text.value = lines.join("\n");
    const end = lines.slice(0, at + 1).join("\n").length;
    this.text.setSelectionRange(end, end);
  }

  drops() {
    const zone = document.documentElement;
    let depth = 0;
    const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    const show = (value) => document.body.classList.toggle("dropping", value);
    zone.addEventListener("dragenter", (event) => {
      if (isFile(event)) show(++depth > 0);
    });
    zone.addEventListener("dragleave", (event) => {
      if (isFile(event)) show(--depth > 0);
    });
    zone.addEventListener("dragover", (event) => {
      if (isFile(event)) event.preventDefault();
    });
    zone.addEventListener("drop", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      depth = 0;
      show(false);
      this.take(event.dataTransfer.files[0]);
    });
  }

  take(file) {
    const ending = file.name.toLowerCase().replace(/\.(gz|zst)$/, "").split(".").at(-1);
    $("which").replaceChildren();
    if (!TYPES[ending]) {
      this.complain(`Got ${file.name}, expected a file ending in .csv, .tsv, .xlsx, .parquet, .smi, .txt or .sdf.`);
      return;
    }
    this.startFile({ body: file, type: TYPES[ending], name: file.name });
  }

  // A table without a column `smiles`: which one holds the SMILES?
  askColumn(asked) {
    const field = element("input", { id: "column", type: "text", spellcheck: "false" });
    $("which").replaceChildren(element("label", { for: "column" }, "Which column holds the SMILES?"), field,
      button("Use it", () => {
        $("which").replaceChildren();
        this.startFile({ ...asked, column: field.value.trim() });
      }));
    field.focus();
    announce("Which column holds the SMILES?");
  }

  // The text is what is predicted next, not a file.
  forget() {
    this.chosen = null;
    $("chosen").textContent = "";
    $("which").replaceChildren();
  }

  submit() {
    const text = this.text.value;
    if (this.chosen) this.run(this.chosen);
    else if (text.trim()) this.run(this.tableOf(text));
    else {
      this.complain("Draw a molecule, or write its SMILES, first.");
      this.text.focus();
    }
  }

  startFile(asked) {
    this.chosen = asked;
    $("chosen").textContent = asked.name;
    this.run(asked);
  }

  // A pasted table as it is; SMILES and names with what the model needs besides the structure.
  tableOf(text) {
    const name = "the text";
    const { model } = this.context;
    const extra = [model.partner, ...model.features].filter((one) => one !== null);
    if (HEADER.test(text.split(/\r?\n/, 1)[0]) && /\n./.test(text)) return { body: text, type: CSV, name };
    if (!extra.length) return { body: text, type: SMI, name };
    const values = extra.map((one) => $("extra").querySelector(`[name="${CSS.escape(one)}"]`)?.value.trim() ?? "");
    const rows = text.split(/\r?\n/).filter((line) => line.trim())
      .map((line) => [.../^(\S+)\s*(.*)$/.exec(line.trim()).slice(1), ...values]);
    const cell = (one) => `"${one.replaceAll('"', '""')}"`;
    return { body: [["smiles", "name", ...extra], ...rows].map((row) => row.map(cell).join(",")).join("\n"), type: CSV, name };
  }

  // Fields for what the chosen model needs besides the structure.
  showExtra() {
    const { model } = this.context;
    const field = (name, attributes) => element("label", {}, element("span", {}, name), element("input", { name, ...attributes }));
    const fields = [
      ...(model.partner === null ? [] : [field(model.partner, { type: "text", placeholder: "SMILES of the second molecule", spellcheck: "false" })]),
      ...model.features.map((name) => field(name, { type: "number", step: "any" })),
    ];
    $("extra").hidden = !fields.length;
    $("extra").replaceChildren(element("legend", {}, "The model also needs"), ...fields);
  }
}
