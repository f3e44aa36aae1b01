// Requests to the server: the token, waiting when it is busy, and answers line by line.
const TRIES = 20;
const TOKEN = "molattn-token";

const refusal = (status, code, message) => Object.assign(new Error(message), { status, code });

// The address is free of the token as soon as it is read, so that it is not copied with it.
export function readToken() {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given === null) return;
  setToken(given);
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

async function ask(path, { body, type = "application/json", accept, signal, onWait } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = {
    ...(token && { Authorization: `Bearer ${token}` }),
    ...(accept && { Accept: accept }),
    ...(body !== undefined && { "Content-Type": type }),
  };
  for (let tried = 1; ; tried++) {
    const method = body === undefined ? "GET" : "POST";
    const response = await fetch(path, { method, headers, body, signal }).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw refusal(0, "unreachable", "The server does not answer. Is molattn serve still running?");
    });
    if (response.ok) return response;
    if (![429, 503].includes(response.status) || tried === TRIES) {
      const { error = "error", message = `The server answered ${response.status}.` } =
        await response.json().catch(() => ({}));
      throw refusal(response.status, error, message);
    }
    const seconds = Math.min(5, Number(response.headers.get("Retry-After")) || 1);
    onWait?.();
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    signal?.throwIfAborted();
  }
}

const askJson = async (path, query, signal) =>
  (await ask(path, { body: query && JSON.stringify(query), signal })).json();

export const getModels = async () => (await askJson("models")).models;

export const physchem = (query, signal) => askJson(`physchem?${new URLSearchParams(query)}`, undefined, signal);

export const drawSites = (query, signal) => askJson("sites", query, signal);

export const explain = (query, signal) => askJson("explain", query, signal);

// The answer for one molecule.
export async function predict({ smiles, partner, features }, options, signal) {
  const named = Object.entries(features).map(([name, value]) => [name, [value]]);
  const query = { ...options, smiles: [smiles], ...(partner !== null && { partner: [partner] }) };
  if (named.length) query.features = Object.fromEntries(named);
  return (await askJson("predict", query, signal)).molecules[0];
}

const drawings = new Map();
const DRAWINGS = 400;

// The drawing of a molecule as SVG text; null if it has none.
export function depict(smiles, width, height, other = null, atoms = []) {
  const query = new URLSearchParams({ smiles, width, height, ...(other !== null && { other }) });
  for (const atom of atoms) query.append("atoms", atom);
  const path = `depict?${query}`;
  if (!drawings.has(path)) {
    if (drawings.size >= DRAWINGS) drawings.clear();
    drawings.set(path, ask(path).then((response) => response.text()).catch(({ status }) => {
      if (status !== 422) drawings.delete(path); // may work later
      return null;
    }));
  }
  return drawings.get(path);
}

// A table of predictions (CSV with mol blocks) as a file of the type `accept`.
export async function writeTable(body, { model, level, as_given, smiles_column }, accept, signal, onWait) {
  const path = `table?${new URLSearchParams({ model, level, as_given, smiles_column })}`;
  return (await ask(path, { body, type: "text/csv", accept, signal, onWait })).blob();
}

// Of a table { body, type, column }: the number of its molecules, how it was read, and an iterator of their answers,
// in order. `read` is called before with the names of the columns, those of the input and all.
export async function answersOf({ body, type, column }, options, signal, onWait, read) {
  const query = new URLSearchParams({ ...options, cells: true, ...(column && { smiles_column: column }) });
  const response = await ask(`predict?${query}`, { body, type, accept: "application/json", signal, onWait });
  const total = Number(response.headers.get("X-Molattn-Rows"));
  const remarks = decodeURIComponent(response.headers.get("X-Molattn-Remarks") ?? "");
  return { total, remarks, answers: answers(response.body, total, read) };
}

// The first line of the answer names the columns, each other one is a molecule.
async function* answers(stream, total, begin) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let [rest, read] = ["", 0];
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    if (lines[0]?.startsWith('{"model"')) begin(JSON.parse(`${lines[0]}]}`));
    const molecules = lines.filter((line) => line.startsWith('{"smiles"'));
    read += molecules.length;
    yield* molecules.map((line) => JSON.parse(line.replace(/,$/, "")));
  }
  if (read !== total) throw refusal(0, "rows", `The server stopped after ${read} of ${total} molecules.`);
}
