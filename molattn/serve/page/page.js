// The page: which model, what is asked, how far it is, and what came of it.
import { answersOf, getModels, readToken, setToken, writeTable } from "./api.js";
import { csvOf } from "./columns.js";
import { Input, TYPES } from "./input.js";
import { MoleculeView } from "./molecule.js";
import { isMostlyLow } from "./properties.js";
import { Score } from "./score.js";
import { $, announce, button, count, element, plural } from "./shared.js";
import { siteTasksOf } from "./sites.js";
import { MoleculeTable } from "./table.js";

const LARGE = { xlsx: "Excel", sdf: "SDF" }; // formats that the server writes

const context = {
  model: null,
  columns: [], // of the file of predictions
  own: [], // of these the columns of the input
  smiles: "", // and the one of the molecules
  rows: () => state.rows,
  save,
  options: () => ({ model: context.model.name, level: Number($("level").value), neighbors: 0,
    as_given: context.model.predicts_parents && !$("parent").checked }),
  against: () => $("against").value,
};
const state = { rows: [], asked: null, total: 0, remarks: "", abort: null, opened: null };
context.score = new Score(context, () => {
  if (state.total > 1) table.rescore();
  else if (state.opened) view.refresh();
}, complain);
const table = new MoleculeTable($("table"), context, (row) => open(row));
const view = new MoleculeView($("molecule"), context);
const fromAddress = () => new URLSearchParams(location.hash.slice(1));
const input = new Input(run, complain, fromAddress().get("smiles") ?? "");

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

const duration = (seconds) =>
  (seconds < 100 ? `${Math.max(1, Math.ceil(seconds))} s` : `${Math.ceil(seconds / 60)} min`);

// The end of a job, or that there is none.
function say(text) {
  $("progress").classList.remove("running");
  $("said").textContent = text;
  announce(text);
}

function showProgress(started, waits = false) {
  const { rows: { length: done }, total } = state;
  const seconds = (performance.now() - started) / 1000;
  const rate = done / seconds;
  const parts = [total ? `${count(done)} of ${plural(total, "molecule")}` : "reading the molecules"];
  if (total > 1 && done && seconds > 1) {
    parts.push(`${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second`, `${duration((total - done) / rate)} left`);
  }
  if (waits) parts.push("the server is busy, waiting");
  $("bar").max = total || 1;
  $("bar").value = done;
  $("progress").classList.add("running");
  $("said").textContent = parts.join(" \u00b7 ");
}

// The address of what is shown, from which the page opens it again: `#smiles=...&row=3`.
function address(row = null) {
  const { model } = context;
  const parts = new URLSearchParams();
  if (state.asked?.text) parts.set("smiles", state.asked.text);
  if (state.asked?.text && model.predicts_parents && !$("parent").checked) parts.set("as_given", 1);
  if (state.asked?.text && $("model").options.length > 1) parts.set("model", model.name);
  if (row && state.total > 1) parts.set("row", row.place);
  return parts.size ? `#${parts}` : location.pathname + location.search;
}

// Predicts what the address of the page names, if anything.
function openAddress() {
  const given = fromAddress();
  const text = given.get("smiles");
  if (!text || text === state.asked?.text) return false;
  const at = [...$("model").options].findIndex((one) => one.text === given.get("model"));
  if (at >= 0 && at !== $("model").selectedIndex) {
    $("model").selectedIndex = at;
    $("model").onchange();
  }
  $("parent").checked = !given.has("as_given");
  state.wanted = Number(given.get("row"));
  input.open(text);
  return true;
}

// Forgets what was asked before.
function clear() {
  state.abort?.abort();
  Object.assign(state, { rows: [], asked: null, total: 0, remarks: "", abort: null, opened: null });
  complain("");
  view.close();
  table.close();
  history.replaceState(null, "", location.pathname + location.search);
  $("downloads").hidden = true;
}

async function run(asked) {
  clear();
  const { signal } = state.abort = new AbortController();
  state.asked = asked;
  let started = performance.now();
  let drawn = started;
  showProgress(started);
  let problem = null;
  try {
    const { total, remarks, answers } = await answersOf(asked, context.options(), signal, () => showProgress(started, true),
      ({ columns, own_columns: size, smiles_column: smiles }) => Object.assign(context, { columns, own: columns.slice(0, size), smiles }));
    Object.assign(state, { total, remarks });
    started = performance.now();
    showResults(total > 0);
    for await (const answer of answers) {
      state.rows.push({ place: answer.row, name: answer.name ?? "", smiles: answer.smiles ?? "",
        partner: answer.partner ?? null, features: answer.features ?? {}, answer });
      const now = performance.now();
      if (now - drawn < 400) continue;
      drawn = now;
      showProgress(started);
      if (total > 1) table.refresh();
    }
  } catch (error) {
    problem = error;
  }
  if (signal === state.abort?.signal) finish(problem); // unless another was started in the meantime
}

function showResults(shown) {
  $("empty").hidden = shown;
  $("results").hidden = !shown;
  if (state.total > 1) table.show(state.rows);
  showTable();
}

function finish(problem) {
  const { rows, total, asked } = state;
  state.abort = null;
  const isCancelled = problem?.name === "AbortError";
  const failed = rows.filter(({ answer }) => answer.error !== null).length;
  const low = rows.filter(({ answer }) => isMostlyLow(answer)).length;
  const parts = [problem === null ? `${plural(rows.length, "molecule")} done`
    : !total && !isCancelled ? "Nothing predicted" : `${isCancelled ? "Cancelled" : "Stopped"} after ${count(rows.length)} of ${plural(total, "molecule")}`];
  if (failed) parts.push(`${count(failed)} without a prediction`);
  if (low) parts.push(`${count(low)} with mostly low confidence`);
  say(`${parts.join(", ")}.${state.remarks && ` Read: ${state.remarks}.`}`);
  if (problem !== null && !isCancelled) {
    complain(`${asked.name}: ${problem.message.split("(smiles_column); ").at(-1)}`);
    if (problem.status === 401) askToken();
    if (problem.status === 422) input.forget();
    if (problem.message.includes("(smiles_column)")) input.askColumn(asked);
  } else if (problem === null && !total) input.complain(`No molecules in ${asked.name}.`);
  $("downloads").hidden = !rows.length;
  if (!rows.length) showResults(false);
  else if (total > 1) table.refresh();
  else open(rows[0]);
  if (rows.length && problem === null) {
    if (!location.hash) history.replaceState(null, "", address());
    const wanted = total > 1 && rows.find(({ place }) => place === state.wanted);
    if (wanted) open(wanted);
  }
  state.wanted = 0;
  requestAnimationFrame(() => requestAnimationFrame(() => { // once they are drawn
    const { top } = $("results").getBoundingClientRect();
    if (top > 0.4 * innerHeight) $("progress").scrollIntoView({ block: "start" });
  }));
}

// A table, and one molecule of it

function open(row) {
  state.opened = row;
  $("molecule").hidden = false;
  view.show(row);
  if (state.total === 1) return;
  if (location.hash !== address(row)) history.pushState(null, "", address(row));
  $("table").hidden = true;
  $("back").hidden = false;
  $("molecule-name").focus({ preventScroll: true });
  $("results").scrollIntoView({ block: "start" });
}

function showTable() {
  const from = state.opened;
  state.opened = null;
  $("table").hidden = state.total === 1;
  $("back").hidden = true;
  $("molecule").hidden = true;
  view.close();
  if (from) $("table").querySelector(`[data-key="row ${from.place}"]`)?.focus();
}

function step(by) {
  const { order } = table;
  const at = order.indexOf(state.opened);
  if (order.length) open(order[(at + by + order.length) % order.length]);
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Saves the rows that the table shows, in its order, as they were predicted.
async function download(ending) {
  const rows = state.total > 1 ? table.order : state.rows;
  const name = `predictions.${ending}`;
  if (!LARGE[ending]) {
    save(new Blob([csvOf(context, rows)], { type: TYPES[ending] }), name);
    say(`${name}: ${plural(rows.length, "molecule")}.`);
    return;
  }
  const { signal } = state.abort = new AbortController();
  const wait = (words) => {
    $("bar").removeAttribute("value"); // how long it takes is not known
    $("progress").classList.add("running");
    $("said").textContent = words;
  };
  $("downloads").inert = true;
  const words = `Writing ${LARGE[ending]}, ${plural(rows.length, "molecule")}`;
  wait(words);
  try {
    save(await writeTable(csvOf(context, rows, true), { ...context.options(), smiles_column: context.smiles }, TYPES[ending], signal,
      () => wait(`${words} \u00b7 the server is busy, waiting`)), name);
    say(`${name}: ${plural(rows.length, "molecule")}.`);
  } catch (error) {
    say(error.name === "AbortError" ? `${name} cancelled.` : `${name} is not written.`);
    if (error.name !== "AbortError") complain(error.message);
  }
  $("downloads").inert = false;
}

addEventListener("popstate", () => {
  if (openAddress()) return;
  const row = state.rows.find(({ place }) => fromAddress().get("row") === String(place));
  if (row) open(row);
  else if (state.total > 1) showTable();
});
$("to-table").addEventListener("click", () => history.back());
for (const [id, by] of [["previous", -1], ["next", 1]]) $(id).addEventListener("click", () => step(by));
$("cancel").addEventListener("click", () => state.abort?.abort());
for (const ending of ["csv", "xlsx", "sdf"]) {
  $(`save-${ending}`).addEventListener("click", () => download(ending));
}
for (const id of ["parent", "level"]) $(id).addEventListener("change", () => state.asked && run(state.asked));
$("against").addEventListener("change", () => {
  if (state.opened) view.refresh();
  if (state.total > 1) table.refresh();
});

// Models

function choose(model) {
  context.model = model;
  context.score.restore();
  const names = [...new Set(model.tasks.map((task) => task.reference?.name).filter(Boolean))];
  $("against").replaceChildren(element("option", { value: "training" }, "training molecules"),
    ...names.map((name) => element("option", { value: "reference" }, name)));
  $("against-label").hidden = !names.length;
  $("parent-label").hidden = !model.predicts_parents;
  const properties = [...model.tasks, ...siteTasksOf(model)];
  for (const item of $("empty").querySelectorAll(".of-molecules")) item.hidden = !model.tasks.length;
  for (const item of $("empty").querySelectorAll(".of-sites")) item.hidden = properties.length === model.tasks.length;
  $("level-label").hidden = !properties.some((task) => task.has_interval);
  const level = [...$("level").options].find((one) => Number(one.value) === model.level);
  if (level) level.selected = true;
  const size = properties.length === 1 ? "1 property" : `${properties.length} properties`;
  $("about-model").textContent = `${model.name}: ${size}, molattn ${model.version}`;
  input.showExtra(model);
}

function askToken() {
  const field = element("input", { id: "token", type: "password", autocomplete: "off" });
  const form = element("form", { class: "token", on: {
    submit: (event) => {
      event.preventDefault();
      setToken(field.value.trim());
      form.remove();
      start();
    },
  } }, element("label", { for: "token" }, "Token of the server"), field, element("button", {}, "Open"));
  $("problem").after(form);
  field.focus();
}

async function start() {
  complain("");
  try {
    const models = await getModels();
    $("model").replaceChildren(...models.map((one, at) => element("option", { value: at }, one.name)));
    $("model-label").hidden = models.length < 2;
    $("model").onchange = () => {
      clear();
      showResults(false);
      choose(models[Number($("model").value)]);
    };
    choose(models[0]);
    $("predict").disabled = false;
    say("Ready.");
    openAddress();
  } catch (error) {
    complain(error.message);
    if (error.status === 401) askToken();
    else $("problem").append(" ", button("Try again", start));
  }
}

readToken();
start();
