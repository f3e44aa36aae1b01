// Requests to the server: the token, waiting when it is busy, and answers line by line.
const PART = 500; // molecules in a request: a long list is neither too large nor lost as a whole
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

// Yields [row, answer] for each row, in order. A row has `smiles`, or `block`, a record of an SDF.
export async function* predict(rows, options, signal, onWait) {
  for (let start = 0; start < rows.length; start += PART) {
    const part = rows.slice(start, start + PART);
    const accept = "application/x-ndjson";
    const response = part[0].block === null
      ? await ask("predict", { body: JSON.stringify(query(part, options)), accept, signal, onWait })
      : await ask(`predict?${new URLSearchParams(options)}`, {
        body: part.map((row) => row.block).join(""), type: "chemical/x-mdl-sdfile", accept, signal, onWait,
      });
    let place = 0;
    for await (const line of lines(response.body)) {
      if (place === part.length) throw new Refusal(0, "rows", "The server sent more rows than it was asked.");
      yield [part[place++], JSON.parse(line)];
    }
    if (place !== part.length) {
      throw new Refusal(0, "rows", `The server stopped after ${start + place} of ${rows.length} molecules.`);
    }
  }
}

function query(rows, options) {
  const asked = { ...options, smiles: rows.map((row) => row.smiles) };
  if (rows.some((row) => row.partner !== null)) asked.partner = rows.map((row) => row.partner ?? "");
  const names = Object.keys(rows[0].features);
  if (names.length) {
    asked.features = Object.fromEntries(names.map((name) => [name, rows.map((row) => row.features[name])]));
  }
  return asked;
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
