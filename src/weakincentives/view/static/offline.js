// @ts-check
/**
 * The answers of a page that is a file: those that it has, by address, and those that depend on filters,
 * order and search, which are made from its rows. Everything else was answered when it was written.
 */

/** @typedef {{[name: string]: any}} Row */

const KEPT = 8; // unpacked parts
const VERDICTS = ["fail", "pass", "error"];
const PAGE = { rows: 100, compare: 50 };

/** The view that the file opens with; undefined on a server. */
export const savedView = document.documentElement.dataset.view;

/** @type {Map<number, Promise<any[]>>} */
const parts = new Map();
/** @type {Promise<Map<string, [number, number]>> | null} */
let places = null;
/** @type {Map<string, Promise<any>>} */
const whole = new Map();

/**
 * Return the answer to an address.
 * @param {string} address
 * @returns {Promise<any>}
 */
export async function offlineAnswer(address) {
  const found = await stored(address);
  if (found !== undefined) return found;
  const [name, query] = split(address);
  const made = await (name === "rows" ? rows(query) : name === "place" ? place(query) : name === "compare" ? compare(query) : null);
  if (made) return made;
  throw new Error("This part is not in the shared file.");
}

/** @param {string} address */
export async function hasAnswer(address) {
  places ??= index();
  return (await places).has(normal(address));
}

/** @param {string} address */
async function stored(address) {
  places ??= index();
  const place = (await places).get(normal(address));
  return place && (await part(place[0]))[place[1]];
}

async function index() {
  const all = /** @type {string[][][]} */ (await unpack("index"));
  return new Map(all.flatMap((answers, number) => answers.flatMap((addresses, at) =>
    addresses.map((address) => /** @type {[string, [number, number]]} */ ([normal(address), [number, at]])))));
}

/** @param {number} number */
function part(number) {
  const known = parts.get(number) ?? unpack(`answers-${number}`);
  parts.delete(number);
  parts.set(number, known);
  if (parts.size > KEPT) parts.delete(parts.keys().next().value ?? 0);
  return known;
}

/** @param {string} id */
async function unpack(id) {
  const packed = document.getElementById(id)?.textContent ?? "";
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/**
 * @param {string} address
 * @returns {[string, URLSearchParams]}
 */
function split(address) {
  const [path, query = ""] = address.split(/\?(.*)/s);
  return [path.replace("/api/", ""), new URLSearchParams(query)];
}

/** @param {string} address written by any encoder */
function normal(address) {
  const [name, query] = split(address);
  return `${name}?${query}`;
}

/**
 * All pages of a table, read once.
 * @param {string} name
 * @param {URLSearchParams} query
 * @returns {Promise<Row[] | null>} null if the file has none
 */
function table(name, query) {
  const address = `/api/${name}?${new URLSearchParams(query.getAll("run").map((run) => ["run", run]))}`;
  const read = async () => {
    const pages = [];
    for (let page; (page = await stored(`${address}&page=${pages.length}`)); ) pages.push(page);
    return pages.length ? pages.flat() : null;
  };
  if (!whole.has(address)) whole.set(address, read());
  return /** @type {Promise<Row[] | null>} */ (whole.get(address));
}

// ── rows ──────────────────────────────────────────────────────────────────────────────────────────

/** @param {URLSearchParams} query */
async function rows(query) {
  const found = await selected(query);
  return found && { ...page(found, query, PAGE.rows), indexed: found.length, of: found.length };
}

/**
 * @param {Row[]} all
 * @param {URLSearchParams} query
 * @param {number} size
 */
function page(all, query, size) {
  const offset = Number(query.get("offset"));
  return { rows: all.slice(offset, offset + Number(query.get("limit") ?? size)), total: all.length };
}

/** @param {URLSearchParams} query */
async function place(query) {
  const found = await selected(query);
  const at = found?.findIndex((row) => key(row) === keyOf(query, "at")) ?? -1;
  if (!found || at < 0) return found && { at: null };
  return { at, total: found.length, before: found[at - 1] ?? null, after: found[at + 1] ?? null };
}

/** @param {URLSearchParams} query */
async function selected(query) {
  const all = await table("table", query);
  const words = phrases(query.get("q") ?? "");
  const texts = all && words.length ? await textsOf(query.get("run") ?? "") : null;
  const found = all?.filter((row) => matches(row, query) && (!texts || words.every((word) => texts.get(key(row))?.includes(word))));
  return found ? sorted(found, query.get("order") ?? "position", query.get("desc") === "1") : null;
}

/** @param {Row} row */
function key(row) {
  return JSON.stringify([row.experiment, row.sample, row.epoch]);
}

/**
 * @param {URLSearchParams} query
 * @param {string} sample the name of the parameter
 */
function keyOf(query, sample) {
  return key({ experiment: query.get("experiment"), sample: query.get(sample), epoch: Number(query.get("epoch")) });
}

/**
 * @param {Row} row
 * @param {URLSearchParams} query
 */
function matches(row, query) {
  const verdict = query.get("verdict");
  const facts = Object.entries({ failed: "failed", tool: "tool", worker: "worker", error: "error", meta: "metadata", label: "label" });
  const within = (/** @type {string} */ name, /** @type {number | null} */ least, most = least) => {
    const low = query.get(`min_${name}`), high = query.get(`max_${name}`);
    return (!low || (least !== null && least >= Number(low))) && (!high || (most !== null && most <= Number(high)));
  };
  const unknown = row.cost === null || (row.judge_tokens && row.judge_cost === null);
  return (!verdict || row.verdict === verdict) && facts.every(([name, kind]) => query.getAll(name).every((value) => row.facts.includes(`${kind}:${value}`)))
    && within("latency", row.latency_ms) && within("cost", cost(row), unknown ? null : cost(row));
}

/** @param {Row} row */
function cost(row) {
  return (row.cost ?? 0) + (row.judge_cost ?? 0);
}

const ORDERS = /** @type {{[name: string]: (row: Row) => any}} */ ({
  position: (row) => row.position, sample: (row) => row.sample, epoch: (row) => row.epoch, value: (row) => row.value,
  verdict: (row) => VERDICTS.indexOf(row.verdict), latency: (row) => row.latency_ms, tokens: (row) => row.tokens + row.judge_tokens, cost,
});

/**
 * @param {Row[]} found
 * @param {string} order
 * @param {boolean} descending
 */
function sorted(found, order, descending) {
  const criterion = order.replace(/^criterion:/, "");
  const value = criterion === order ? ORDERS[order] ?? ORDERS.position : (/** @type {Row} */ row) => row.scores[criterion];
  const compare = (/** @type {any} */ a, /** @type {any} */ b) => (a < b ? -1 : a > b ? 1 : 0);
  return found.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const missing = Number(x === undefined) - Number(y === undefined); // last, in either direction
    return missing || (descending ? compare(y, x) : compare(x, y)) || a.position - b.position || a.epoch - b.epoch
      || compare(a.experiment, b.experiment) || compare(a.sample, b.sample);
  });
}

// ── search ────────────────────────────────────────────────────────────────────────────────────────

/**
 * What must be in the words of a row: words, words in quotes together, the last one by its beginning.
 * @param {string} text
 */
function phrases(text) {
  const given = text.split('"').flatMap((part, at) => (at % 2 ? [part] : part.split(/\s+/)));
  const found = given.map(words).filter((each) => each.trim());
  const last = found.length - 1;
  if (last < 0 && text.trim()) return ["nothing"]; // as nothing is between blanks
  return found.map((each, at) => (at === last && !/["\s]$/.test(text) ? each.trimEnd() : each));
}

/**
 * The words of a text, as the search index of the server reads them: letters and digits without marks.
 * @param {string} text
 */
function words(text) {
  return ` ${(text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().match(/[\p{L}\p{N}\p{Co}]+/gu) ?? []).join(" ")} `;
}

/**
 * The words of all texts of a run by row, read once.
 * @param {string} run
 * @returns {Promise<Map<string, string>>}
 */
function textsOf(run) {
  const read = async () => {
    const texts = new Map();
    for (const [address, [number, at]] of (await places) ?? []) {
      const [name, query] = split(address);
      if (!["sample", "text"].includes(name) || query.get("run") !== run || !query.has("epoch")) continue;
      const row = keyOf(query, "sample"), more = words(searchable((await part(number))[at]));
      texts.set(row, (texts.get(row) ?? "") + more);
    }
    return texts;
  };
  if (!whole.has(run)) whole.set(run, read());
  return /** @type {Promise<Map<string, string>>} */ (whole.get(run));
}

/** @param {any} item a sample, its further messages, or a text */
function searchable(item) {
  if (typeof item === "string") return item;
  return [item.sample_id, item.input?.text, item.expected?.text, item.output?.text, item.error, ...(item.scores ?? []).map((/** @type {any} */ score) => score.reason),
    ...item.messages.flatMap((/** @type {any} */ message) => [message.text, ...message.calls.map((/** @type {any} */ call) => `${call.name} ${call.arguments}`)])].join("\n");
}

// ── comparison ────────────────────────────────────────────────────────────────────────────────────

/** @param {URLSearchParams} query */
async function compare(query) {
  const all = await table("matrix", query), kind = query.get("kind") || "different";
  const first = await stored(`/api/compare?${new URLSearchParams(query.getAll("run").map((run) => ["run", run]))}`);
  return all && first && { ...first, ...page(all.filter((row) => row.kinds.includes(kind)), query, PAGE.compare) };
}
