// The page: which model, what is asked, how far it is, and what came of it.
import { getModels, predict, readToken, setToken } from "./api.js";
import { $, announce, button, element } from "./dom.js";
import { Input } from "./input.js";
import { MoleculeView } from "./molecule.js";
import { count, duration, plural } from "./numbers.js";
import { MoleculeTable } from "./table.js";
import { saveCsv, saveSdf } from "./write.js";

const FEW = 25; // up to as many molecules are asked for with their nearest training molecules

const context = {
  model: null,
  options: () => ({ model: context.model.name, level: Number($("level").value), neighbors: 0 }),
  against: () => $("against").value,
};
const state = { rows: [], header: null, abort: null, opened: null };
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
    const parts = [`${count(this.done)} of ${plural(this.total, "molecule")}`];
    if (this.total > 1 && this.done && seconds > 1) {
      parts.push(`${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second`, `${duration((this.total - this.done) / rate)} left`);
    }
    if (this.waits) parts.push("the server is busy, waiting");
    $("said").textContent = parts.join(" \u00b7 ");
    $("bar").max = this.total;
    $("bar").value = this.done;
    announce(parts.join(", "), false);
  },
  end(text) {
    $("progress").classList.remove("running");
    $("said").textContent = text;
    announce(text);
  },
};

async function run({ rows, header }) {
  state.abort?.abort();
  const abort = new AbortController();
  Object.assign(state, { rows, header, abort, opened: null });
  complain("");
  view.close();
  table.close();
  history.replaceState(null, "", location.pathname);
  $("empty").hidden = true;
  $("results").hidden = false;
  $("results").classList.toggle("single", rows.length === 1);
  $("downloads").hidden = true;
  if (rows.length > 1) table.show(rows);
  showTable();
  progress.begin(rows.length);
  const { model } = context;
  let drawn = performance.now();
  let problem = null;
  try {
    const options = { ...context.options(), neighbors: rows.length <= FEW && model.has_neighbors ? 3 : 0 };
    const onWait = () => {
      progress.waits = true;
      progress.draw();
    };
    for await (const [row, answer] of predict(rows, options, abort.signal, onWait)) {
      row.answer = answer;
      progress.waits = false;
      progress.done++;
      const now = performance.now();
      if (now - drawn < 400) continue;
      drawn = now;
      progress.draw();
      if (rows.length > 1) table.refresh();
    }
  } catch (error) {
    problem = error;
  }
  if (state.abort !== abort) return; // another was started in the meantime
  state.abort = null;
  finish(problem);
}

function finish(problem) {
  const { rows } = state;
  const done = rows.filter((row) => row.answer !== null);
  const failed = done.filter((row) => row.answer.error !== null).length;
  const parts = [problem === null ? `${plural(done.length, "molecule")} done`
    : `${problem.name === "AbortError" ? "Cancelled" : "Stopped"} after ${count(done.length)} of ${plural(rows.length, "molecule")}`];
  if (failed) parts.push(`${count(failed)} without a prediction`);
  const beyond = done.filter((row) => row.answer.in_domain === false).length;
  if (beyond) parts.push(`${count(beyond)} beyond what the model knows`);
  progress.end(`${parts.join(", ")}.`);
  if (problem !== null && problem.name !== "AbortError") {
    complain(problem.message);
    if (problem.status === 401) askToken();
  }
  $("downloads").hidden = !done.length;
  if (!done.length) {
    $("results").hidden = true;
    $("empty").hidden = false;
  } else if (rows.length > 1) table.refresh();
  else open(rows[0]);
  const { top } = $("results").getBoundingClientRect();
  if (top > 0.7 * innerHeight) $("progress").scrollIntoView({ block: "start" });
}

// A table, and one molecule of it

function open(row) {
  state.opened = row;
  if (state.rows.length > 1) {
    const address = `#${row.place}`;
    if (location.hash !== address) history.pushState(null, "", address);
    $("table").hidden = true;
    $("back").hidden = false;
  }
  $("molecule").hidden = false;
  view.show(row);
  if (state.rows.length > 1) {
    $("molecule-name").focus({ preventScroll: true });
    $("results").scrollIntoView({ block: "start" });
  }
}

function showTable() {
  const from = state.opened;
  state.opened = null;
  $("table").hidden = state.rows.length === 1;
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
  else if (state.rows.length > 1) showTable();
});
$("to-table").addEventListener("click", () => history.back());
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("cancel").addEventListener("click", () => state.abort?.abort());
const answered = () => state.rows.filter((row) => row.answer !== null);
$("save-csv").addEventListener("click", () => saveCsv(answered(), state.header, context.model));
$("save-sdf").addEventListener("click", () => saveSdf(answered(), context.model));
$("against").addEventListener("change", () => {
  if (state.opened) view.refresh();
  if (state.rows.length > 1) table.refresh();
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
  Object.assign(state, { rows: [], header: null, abort: null, opened: null });
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
