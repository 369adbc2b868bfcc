// @ts-check
/**
 * Requests to the server. A file has none: the answers are in the document.
 */

import { hasAnswer, offlineAnswer, savedView } from "./offline.js";

/** @typedef {{[name: string]: string | number | (string | number)[] | null | undefined}} Params */

/** @type {Set<string>} */
const asked = new Set();

/** Whether this page is a file without a server. */
export const isShared = savedView !== undefined;

/** @type {Set<string>} */
const linked = new Set();
const MAX_LINKED = 400;

/**
 * Forget the recorded requests: a new screen begins.
 */
export function newScreen() {
  asked.clear();
  linked.clear();
}

/**
 * Include the answer in a saved view too, because the screen links to it.
 * @param {string} name
 * @param {Params} params
 */
export function saveToo(name, params) {
  if (linked.size < MAX_LINKED) linked.add(addressOf(name, params));
}

/**
 * @param {string} name
 * @param {Params} params
 */
export function addressOf(name, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") query.append(key, String(each));
    }
  }
  const text = query.toString();
  return `/api/${name}${text ? `?${text}` : ""}`;
}

/**
 * Ask the server; throw an `Error` with its message if it refuses.
 * @param {string} name
 * @param {Params} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(name, params = {}, signal) {
  const address = addressOf(name, params);
  if (isShared) return offlineAnswer(address);
  asked.add(address);
  const response = await fetch(address, { signal });
  if (response.status === 401) refused();
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Error(answer.error ?? `the server answered ${response.status}`);
  return answer;
}

/**
 * Whether an answer can be had: from a server all of them, from a file those that it has.
 * @param {string} name
 * @param {Params} params
 */
export async function isAvailable(name, params) {
  return !isShared || hasAnswer(addressOf(name, params));
}

/**
 * Write something: labels, notes, tags.
 * @param {string} name
 * @param {any} body
 */
export async function tell(name, body) {
  const response = await fetch(`/api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Wink": csrfToken() },
    body: JSON.stringify(body),
  });
  if (response.status === 401) refused();
  if (!response.ok) {
    const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
    throw new Error(answer.error ?? `the server answered ${response.status}`);
  }
  return response;
}

/** The token of this page, without which the server accepts no write. */
function csrfToken() {
  return document.querySelector("meta[name=csrf-token]")?.getAttribute("content") ?? "";
}

/**
 * Save the current view as a file that opens without a server.
 * @param {string} view
 */
export async function save(view) {
  const body = { view, addresses: [...asked, ...linked], title: document.title };
  const response = await tell("share", body);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = "wink-view.html";
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Tell the page that the server does not know its cookie: it was started again, with a new token. */
function refused() {
  window.dispatchEvent(new Event("wink-refused"));
}

/** Whether the server is there and accepts the requests of this browser. */
export async function isAccepted() {
  return fetch("/", { method: "HEAD" }).then((response) => response.ok, () => false);
}

/**
 * Subscribe to new and changed runs, until the returned function is called.
 * @param {(runs: any[]) => void} onRuns
 * @param {(connected: boolean) => void} [onState]
 */
export function listen(onRuns, onState) {
  if (isShared) return () => {};
  const source = new EventSource("/api/events");
  source.addEventListener("runs", (event) => onRuns(JSON.parse(/** @type {MessageEvent} */ (event).data)));
  source.addEventListener("open", () => onState?.(true));
  source.addEventListener("error", () => {
    onState?.(false);
    if (source.readyState === EventSource.CLOSED) refused(); // while the server is gone, the browser tries again
  });
  return () => source.close();
}
