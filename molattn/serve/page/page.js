// The page: which model, what is asked, how far it is, and what came of it.
import { download, getModels, predictTable, readToken, setToken } from "./api.js";
import { $, announce, button, element, save } from "./dom.js";
import { Input, TYPES } from "./input.js";
import { MoleculeView } from "./molecule.js";
import { count, duration, plural } from "./numbers.js";
import { MoleculeTable } from "./table.js";

const context = {
  model: null,
  options: () => ({ model: context.model.name, level: Number($("level").value), neighbors: 0 }),
  against: () => $("against").value,
};
const state = { rows: [], asked: null, total: 0, abort: null, opened: null };
const table = new MoleculeTable($("table"), context, (row) => open(row));
const view = new MoleculeView($("molecule"), context);

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

// Progress

const progress = {
  begin(total) {
    this.total = total;
    this.done = 0;
    this.started = performance.now();
    this.waits = false;
    $("progress").classList.add("running");
    this.draw();
  },
  draw() {
    const seconds = (performance.now() - this.started) / 1000;
    const rate = this.done / seconds;
    const parts = [this.total ? `${count(this.done)} of ${plural(this.total, "molecule")}` : "reading the molecules"];
    if (this.total > 1 && this.done && seconds > 1) {
      parts.push(`${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second`, `${duration((this.total - this.done) / rate)} left`);
    }
    if (this.waits) parts.push("the server is busy, waiting");
    $("said").textContent = parts.join(" \u00b7 ");
    $("bar").max = this.total || 1;
    $("bar").value = this.done;
    announce(parts.join(", "), false);
  },
  end(text) {
    $("progress").classList.remove("running");
    $("said").textContent = text;
    announce(text);
  },
};

async function run(asked) {
  state.abort?.abort();
  const abort = new AbortController();
  const rows = [];
  Object.assign(state, { rows, asked, total: 0, abort, opened: null });
  complain("");
  view.close();
  table.close();
  history.replaceState(null, "", location.pathname);
  $("downloads").hidden = true;
  progress.begin(0);
  let drawn = performance.now();
  let problem = null;
  try {
    const onWait = () => {
      progress.waits = true;
      progress.draw();
    };
    const { total, answers } = await predictTable(asked, context.options(), abort.signal, onWait);
    begin(total);
    for await (const answer of answers) {
      rows.push({ place: rows.length + 1, name: answer.name ?? "", smiles: answer.smiles ?? "",
        partner: answer.partner ?? null, features: answer.features ?? {}, answer });
      progress.done++;
      const now = performance.now();
      if (now - drawn < 400) continue;
      drawn = now;
      progress.draw();
      if (total > 1) table.refresh();
    }
  } catch (error) {
    problem = error;
  }
  if (state.abort !== abort) return; // another was started in the meantime
  state.abort = null;
  finish(problem);
}

function begin(total) {
  state.total = total;
  progress.begin(total);
  $("empty").hidden = true;
  $("results").hidden = false;
  $("results").classList.toggle("single", total === 1);
  if (total > 1) table.show(state.rows);
  showTable();
}

function finish(problem) {
  const { rows: done, total } = state;
  const failed = done.filter((row) => row.answer.error !== null).length;
  const parts = [problem === null ? `${plural(done.length, "molecule")} done`
    : `${problem.name === "AbortError" ? "Cancelled" : "Stopped"} after ${count(done.length)} of ${plural(total, "molecule")}`];
  if (failed) parts.push(`${count(failed)} without a prediction`);
  const beyond = done.filter((row) => row.answer.in_domain === false).length;
  if (beyond) parts.push(`${count(beyond)} beyond what the model knows`);
  progress.end(`${parts.join(", ")}.`);
  if (problem !== null && problem.name !== "AbortError") {
    const { asked } = state;
    complain(`${asked.name}: ${problem.message}`);
    if (problem.status === 401) askToken();
    if (problem.status === 422) input.forget();
    if (problem.message.includes("(smiles_column)")) input.askColumn(asked);
  } else if (problem === null && !total) input.complain(`No molecules in ${state.asked.name}.`);
  $("downloads").hidden = problem !== null || !done.length;
  if (!done.length) {
    $("results").hidden = true;
    $("empty").hidden = false;
  } else if (total > 1) table.refresh();
  else open(done[0]);
  const { top } = $("results").getBoundingClientRect();
  if (top > 0.7 * innerHeight) $("progress").scrollIntoView({ block: "start" });
}

// A table, and one molecule of it

function open(row) {
  state.opened = row;
  if (state.total > 1) {
    const address = `#${row.place}`;
    if (location.hash !== address) history.pushState(null, "", address);
    $("table").hidden = true;
    $("back").hidden = false;
  }
  $("molecule").hidden = false;
  view.show(row);
  if (state.total > 1) {
    $("molecule-name").focus({ preventScroll: true });
    $("results").scrollIntoView({ block: "start" });
  }
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
  const order = table.order;
  const at = order.indexOf(state.opened);
  if (order.length) open(order[(at + by + order.length) % order.length]);
}

addEventListener("popstate", () => {
  const row = state.rows.find(({ place }) => location.hash === `#${place}`);
  if (row?.answer) open(row);
  else if (state.total > 1) showTable();
});
$("to-table").addEventListener("click", () => history.back());
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("cancel").addEventListener("click", () => state.abort?.abort());
for (const [ending, type] of Object.entries({ csv: TYPES.csv, xlsx: TYPES.xlsx, sdf: TYPES.sdf })) {
  $(`save-${ending}`).addEventListener("click", async (event) => {
    const pressed = event.currentTarget;
    pressed.disabled = true; // until the server has predicted and written them
    try {
      save(`predictions.${ending}`, await download(state.asked, context.options(), type));
    } catch (error) {
      complain(error.message);
    }
    pressed.disabled = false;
  });
}
$("against").addEventListener("change", () => {
  if (state.opened) view.refresh();
  if (state.total > 1) table.refresh();
});

// Models

function choose(model) {
  context.model = model;
  const names = [...new Set(model.tasks.map((task) => task.reference?.name).filter(Boolean))];
  $("against").replaceChildren(element("option", { value: "training" }, "training molecules"),
    ...names.map((name) => element("option", { value: "reference" }, name)));
  $("against-label").hidden = !names.length;
  $("level-label").hidden = !model.tasks.some((task) => task.has_interval);
  const level = [...$("level").options].find((one) => Number(one.value) === model.level);
  if (level) level.selected = true;
  $("about-model").textContent = `${model.name}: ${plural(model.tasks.length, "property").replace("propertys", "properties")}`
    + `, molattn ${model.version}`;
  input.showExtra();
}

function clear() {
  state.abort?.abort();
  Object.assign(state, { rows: [], asked: null, total: 0, abort: null, opened: null });
  view.close();
  table.close();
  $("results").hidden = true;
  $("empty").hidden = false;
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
      choose(models[Number($("model").value)]);
    };
    choose(models[0]);
    $("predict").disabled = false;
    progress.end("Ready.");
  } catch (error) {
    complain(error.message);
    if (error.status === 401) askToken();
    else $("problem").append(" ", button("Try again", start));
  }
}

readToken();
const input = new Input(context, run, complain);
start();
