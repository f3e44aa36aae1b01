// Requests to the server: the token, waiting when it is busy, and answers line by line.
const TRIES = 20;
const TOKEN = "molattn-token";

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The address is free of the token as soon as it is read, so that it is not copied with it.
export function readToken() {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given === null) return;
  sessionStorage.setItem(TOKEN, given);
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

export async function ask(path, { body, type = "application/json", accept, signal, onWait } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = type;
  for (let tried = 1; ; tried++) {
    let response;
    try {
      response = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, "unreachable", "The server does not answer. Is molattn serve still running?");
    }
    if (response.ok) return response;
    if (![429, 503].includes(response.status) || tried === TRIES) throw await refusal(response);
    const seconds = Math.min(30, Number(response.headers.get("Retry-After")) || 1);
    onWait?.(seconds);
    await pause(seconds, signal);
  }
}

async function refusal(response) {
  const given = await response.json().catch(() => ({}));
  const message = typeof given.message === "string" ? given.message
    : `The server answered ${response.status} ${response.statusText}.`;
  return new Refusal(response.status, given.error ?? "error", message);
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, 1000 * seconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

export const getModels = async () => (await (await ask("models")).json()).models;

export const explain = async (query, signal) =>
  (await ask("explain", { body: JSON.stringify(query), signal })).json();

const drawings = new Map();
const DRAWINGS = 400;

// The drawing of a molecule as SVG text; null if it has none.
export async function depict(smiles, width, height, other = null) {
  const query = new URLSearchParams({ smiles, width, height, ...(other === null ? {} : { other }) });
  const key = query.toString();
  if (!drawings.has(key)) {
    if (drawings.size >= DRAWINGS) drawings.delete(drawings.keys().next().value);
    drawings.set(key, ask(`depict?${key}`).then((response) => response.text()).catch((error) => {
      if (error.status !== 422 && error.status !== 404) drawings.delete(key); // may work later
      return null;
    }));
  }
  return drawings.get(key);
}

const address = ({ column }, options) =>
  `predict?${new URLSearchParams(column ? { ...options, smiles_column: column } : options)}`;

// The number of molecules of a table { body, type, column }, and an iterator of their answers, in order.
export async function predictTable(asked, options, signal, onWait) {
  const { body, type } = asked;
  const response = await ask(address(asked, options), { body, type, accept: "application/x-ndjson", signal, onWait });
  const total = Number(response.headers.get("X-Molattn-Rows"));
  return { total, answers: answersOf(response, total) };
}

async function* answersOf(response, total) {
  let count = 0;
  for await (const line of lines(response.body)) {
    count++;
    yield JSON.parse(line);
  }
  if (count !== total) throw new Refusal(0, "rows", `The server stopped after ${count} of ${total} molecules.`);
}

// The predictions of a table as a file of some type.
export async function download(asked, options, accept) {
  const { body, type } = asked;
  return (await ask(address(asked, options), { body, type, accept })).blob();
}

// The answer for one molecule.
export async function predict({ smiles, partner, features }, options, signal) {
  const asked = { ...options, smiles: [smiles] };
  if (partner !== null) asked.partner = [partner];
  const named = Object.entries(features).map(([name, value]) => [name, [value]]);
  if (named.length) asked.features = Object.fromEntries(named);
  return (await (await ask("predict", { body: JSON.stringify(asked), signal })).json()).molecules[0];
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part.trim()) yield part;
    }
    if (rest.trim()) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}
