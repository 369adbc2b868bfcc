// @ts-check
/** One run: its figures, and a table of its samples with filters that are all in the address. */

import { ask, isAvailable, isShared, listen, saveToo } from "./api.js";
import { decimals, duration, el, fill, mark, middle, moment, number, money, percent, plural } from "./dom.js";
import { figures } from "./figures.js";
import { labelColumn, labelCounts, reviewLink } from "./labels.js";
import { link, paramsOf } from "./links.js";
import { intervalBar } from "./plot.js";
import { status } from "./runs.js";
import "./table.js";
import { tagEditor } from "./tags.js";

const MAX_CRITERIA = 40;
const DENSE_FROM = 7; // criteria: more than that stand in narrow columns

/** Whether the panel of filters is open: it stays so from one filter to the next. */
let filtersOpen = false;

/** @param {import("./app.js").Screen} screen */
export async function runScreen({ path, query, signal, main, onKey }) {
  const wanted = ask("run", { run: path[0] }, signal);
  wanted.catch(() => {}); // awaited below, where it is reported
  const first = await ask("head", { run: path[0] }, signal);
  const id = first.run_id;
  document.title = `${id} · WINK Evals`;
  const summary = el("section", { class: "summary", "aria-label": "Figures" });
  const facets = el("div", { class: "facets" });
  const table = /** @type {import("./table.js").WinkTable} */ (el("wink-table"));
  const found = el("span", { class: "count", role: "status" });
  const go = (/** @type {{[name: string]: any}} */ changed) => {
    location.hash = link(["run", id], { ...paramsOf(query), ...changed });
  };
  const head = el("div", { class: "title" }, el("h1", {}, id));
  const about = el("div", { class: "subtitle" });
  const sliced = el("div");
  fill(main, el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), "/", el("span", { class: "id", title: id }, id)),
    head, about, summary, filters(query, go, found, facets), table);
  const shown = table.show({
    columns: columns(first.criteria, first.epochs, first.labelled > 0),
    fetch: async (/** @type {number} */ offset, /** @type {number} */ limit) => {
      const page = await ask("rows", { run: id, ...paramsOf(query), offset, limit }, signal);
      for (const row of page.rows) saveToo("sample", { run: id, sample: row.sample, epoch: row.epoch, experiment: row.experiment });
      return page;
    },
    href: (/** @type {any} */ row) => link(["sample", id, row.sample], { ...paramsOf(query), epoch: row.epoch, experiment: row.experiment }),
    order: query.get("order") ?? "position",
    descending: query.get("desc") === "1",
    onOrder: (/** @type {string} */ order, /** @type {boolean} */ descending) => go({ order: order === "position" ? "" : order, desc: descending ? "1" : "" }),
    label: "Samples",
    empty: [...query.keys()].some((name) => name !== "order" && name !== "desc") ? "Nothing matches these filters." : "This run has no rows.",
    onPage: (/** @type {any} */ page) => (found.textContent = `${plural(page.total, "row")}${page.indexed < page.of ? `, ${Math.floor((100 * page.indexed) / page.of)}% searchable` : ""}`),
  });
  onKey({ c: () => go({ verdict: "", failed: [], tool: [], error: [], meta: [], worker: [], label: [], q: "", min_latency: "", max_latency: "", min_cost: "", max_cost: "" }) }, { c: "clear the filters", "↑ ↓": "move in the table", Enter: "open the sample" });
  const showFigures = async (/** @type {any} */ run) => {
    document.title = `${run.title} · WINK Evals`;
    const last = run.earlier[run.earlier.length - 1];
    const previous = last && (await isAvailable("compare", { run: [last.run_id, id] })) ? last : null;
    fill(head, el("h1", {}, run.title), ...status(run), el("span", { class: "space" }),
      run.total ? reviewLink(id) : null,
      previous && run.total ? el("a", { class: "button", href: link(["compare"], { run: [previous.run_id, id] }), title: `${previous.run_id}, ${percent(previous.pass_rate)}` }, "Compare with the run before") : null);
    figures(summary, run, sliced);
  };
  const run = await wanted;
  fill(about, el("p", { class: "about" }, [run.label, run.experiment, moment(run.created_at)].filter(Boolean).join(" · ")), tagEditor(id, run.tags));
  await showFigures(run);
  await shown;

  let indexed = -1;
  const showSlices = slicesCard(sliced, query, go, id, signal);
  const update = async () => {
    const answer = await ask("facets", { run: id }, signal);
    fill(facets, facetGroups(answer, query, go));
    await showSlices(answer);
    const before = indexed;
    indexed = answer.indexed;
    if (before >= 0 && before !== indexed) await table.refresh();
    if (indexed < answer.of && !isShared) setTimeout(() => void update().catch(() => {}), 50);
    else if (before < 0 && table.total && !table.pages.get(0)?.[0]?.input) await table.refresh();
  };
  signal.addEventListener("abort", listen(follow(id, async () => {
    await showFigures(await ask("run", { run: id }, signal));
    await update();
    await table.refresh();
  })));
  void update().catch(() => {});
}

/**
 * Return a listener that shows a run again when it has changed. While its figures take long, it waits
 * four times as long until the next ones: watching a run must not slow it down.
 * @param {string} id
 * @param {() => Promise<void>} show
 */
function follow(id, show) {
  let busy = false, again = false;
  const update = async () => {
    busy = true;
    again = false;
    const began = performance.now();
    await show().catch(() => {});
    setTimeout(() => {
      busy = false;
      if (again) void update();
    }, 4 * (performance.now() - began));
  };
  return (/** @type {any[]} */ runs) => {
    if (!runs.some((each) => each.run_id === id)) return;
    if (busy) again = true;
    else void update();
  };
}

/**
 * @param {URLSearchParams} query
 * @param {(changed: {[name: string]: any}) => void} go
 * @param {HTMLElement} found
 * @param {HTMLElement} facets
 */
function filters(query, go, found, facets) {
  const search = /** @type {HTMLInputElement} */ (el("input", {
    type: "search", value: query.get("q") ?? "", placeholder: "Search inputs, outputs, messages, tool calls", "aria-label": "Search samples",
  }));
  search.addEventListener("change", () => go({ q: search.value.trim() }));
  const verdict = query.get("verdict") ?? "";
  const verdicts = el("div", { class: "switch", role: "group", "aria-label": "Verdict" },
    ["", "fail", "error", "pass"].map((name) => el("button", {
      type: "button", "aria-pressed": String(name === verdict), on: { click: () => go({ verdict: name }) },
    }, name || "all")));
  const active = [
    ...["failed", "tool", "error", "meta", "worker", "label"].flatMap((name) => query.getAll(name).map((value) => ({ name, value }))),
    ...["min_latency", "max_latency", "min_cost", "max_cost"].flatMap((name) => (query.get(name) ? [{ name, value: query.get(name) ?? "" }] : [])),
  ];
  return el("section", { class: "filters", "aria-label": "Filters" },
    el("div", { class: "bar" }, verdicts, search, found),
    active.length ? el("div", { class: "active" }, active.map(({ name, value }) => el("button", {
      type: "button", class: "chip", title: "Remove this filter",
      on: { click: () => go({ [name]: query.getAll(name).filter((each) => each !== value) }) },
    }, `${name.replace("_", " ")}: ${value} ×`))) : null,
    el("details", { class: "more", open: filtersOpen, on: { toggle: (/** @type {Event} */ event) => (filtersOpen = /** @type {HTMLDetailsElement} */ (event.target).open) } },
      el("summary", {}, "Filters"), facets, ranges(query, go)));
}

/**
 * @param {URLSearchParams} query
 * @param {(changed: {[name: string]: any}) => void} go
 */
function ranges(query, go) {
  return el("div", { class: "ranges" }, [["min_latency", "Latency from, ms"], ["max_latency", "to, ms"], ["min_cost", "Cost from, $"], ["max_cost", "to, $"]].map(([name, label]) => {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "number", min: 0, step: "any", value: query.get(name) ?? "" }));
    input.addEventListener("change", () => go({ [name]: input.value }));
    return el("label", {}, label, input);
  }));
}

/**
 * @param {any} facets
 * @param {URLSearchParams} query
 * @param {(changed: {[name: string]: any}) => void} go
 */
function facetGroups(facets, query, go) {
  const group = (/** @type {string} */ title, /** @type {string} */ name, /** @type {{[value: string]: number}} */ values, prefix = "") => {
    const entries = Object.entries(values);
    if (!entries.length) return null;
    return el("fieldset", {}, el("legend", {}, title), entries.slice(0, 30).map(([value, count]) => el("button", {
      type: "button", class: "facet", "aria-pressed": String(query.getAll(name).includes(prefix + value)), on: { click: () => toggle(query, go, name, prefix + value) },
    }, el("span", {}, value), el("span", { class: "count" }, number(count)))));
  };
  return [
    group("Label of people", "label", labelCounts(facets)),
    group("Failed criterion", "failed", facets.failed),
    group("Error", "error", facets.errors),
    group("Tool called", "tool", facets.tools),
    group("Worker", "worker", facets.workers),
    ...Object.keys(facets.metadata).map((key) => group(key, "meta", facets.metadata[key], `${key}=`)),
  ];
}

/**
 * Set a filter, or remove it if it is set.
 * @param {URLSearchParams} query
 * @param {(changed: {[name: string]: any}) => void} go
 * @param {string} name
 * @param {string} value
 */
function toggle(query, go, name, value) {
  const now = query.getAll(name);
  go({ [name]: now.includes(value) ? now.filter((each) => each !== value) : [...now, value] });
}

/**
 * Return a function that shows the pass rate by a metadata key in a card, again whenever more rows are
 * read: at first, by the key with the fewest values.
 * @param {HTMLElement} box
 * @param {URLSearchParams} query
 * @param {(changed: {[name: string]: any}) => void} go
 * @param {string} id
 * @param {AbortSignal} signal
 */
function slicesCard(box, query, go, id, signal) {
  const by = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": "Pass rate by" }));
  const body = el("div", { class: "scroll" });
  const soFar = el("p", { class: "note", role: "status" });
  const draw = async () => {
    const answer = await ask("slices", { run: id, by: by.value }, signal);
    fill(body, el("table", { class: "bars" }, el("tbody", {}, answer.slices.map((/** @type {any} */ slice) => el("tr", {},
      el("th", { scope: "row" }, el("button", { type: "button", class: "quiet", on: { click: () => toggle(query, go, "meta", `${answer.by}=${slice.value}`) } }, slice.value)),
      el("td", {}, intervalBar(slice.pass_rate, slice.interval[0], slice.interval[1])), el("td", { class: "number" }, percent(slice.pass_rate)), el("td", { class: "number note" }, `of ${number(slice.n)}`))))));
  };
  by.addEventListener("change", () => void draw().catch(() => {}));
  return async (/** @type {any} */ { metadata, indexed, of }) => {
    const size = (/** @type {string} */ key) => Object.keys(metadata[key]).length;
    const keys = Object.keys(metadata).sort((a, b) => Number(size(a) < 2) - Number(size(b) < 2) || size(a) - size(b));
    if (!keys.length) return;
    const chosen = keys.includes(by.value) ? by.value : keys[0];
    fill(by, keys.map((key) => el("option", { value: key, selected: key === chosen }, key)));
    fill(soFar, indexed < of && `of ${plural(indexed, "row")} read so far`);
    if (!box.childElementCount) fill(box, el("div", { class: "bar" }, el("h2", {}, "Pass rate by"), by), soFar, body);
    await draw();
  };
}

/**
 * @param {string[]} names of the criteria
 * @param {boolean} epochs whether there are several
 * @param {boolean} labelled whether people have labelled outputs
 */
function columns(names, epochs, labelled) {
  const several = names.length > 1 ? names.slice(0, MAX_CRITERIA) : [];
  const dense = several.length >= DENSE_FROM;
  const heat = (/** @type {any} */ row, /** @type {string} */ name) => {
    if (!(name in row.scores)) return "–";
    const failed = row.failed.includes(name), value = row.scores[name];
    const text = dense && value === 1 ? "✓" : number(Number(decimals(value, 2)));
    return el("span", { class: `heat ${failed ? "failed" : value >= 1 ? "good" : ""}`, title: `${name}: ${number(value)}${failed ? ", failed" : ""}` }, text);
  };
  const fits = (/** @type {string} */ name) => Math.max(4.5, Math.min(9, name.length * 0.52 + 1.8));
  return [
    { key: "sample", title: "Sample", width: 13, order: "sample", cell: (/** @type {any} */ row) => middle(row.sample) },
    ...(epochs ? [{ key: "epoch", title: "Epoch", width: 4.5, number: true, order: "epoch", cell: (/** @type {any} */ row) => row.epoch }] : []),
    { key: "verdict", title: "Verdict", width: 5.5, order: "verdict", cell: (/** @type {any} */ row) => mark(row.verdict) },
    { key: "value", title: "Score", width: 4.5, number: true, order: "value", cell: (/** @type {any} */ row) => (row.verdict === "error" ? "–" : number(Number(decimals(row.value, 3)))) },
    ...several.map((name) => ({
      key: name, title: name, width: dense ? 2.6 : fits(name), number: true, dense, order: `criterion:${name}`, cell: (/** @type {any} */ row) => heat(row, name),
    })),
    ...(labelled ? [labelColumn] : []),
    { key: "why", title: "Why", width: 12, grow: 3, cell: (/** @type {any} */ row) => el("span", { title: row.why, class: row.verdict === "pass" ? "note" : "" }, row.why) },
    { key: "input", title: "Input", width: 10, grow: 3, cell: (/** @type {any} */ row) => el("span", { title: row.input }, row.input) },
    { key: "output", title: "Output", width: 10, grow: 3, cell: (/** @type {any} */ row) => el("span", { title: row.output }, row.output) },
    { key: "latency", title: "Time", width: 5.8, number: true, order: "latency", cell: (/** @type {any} */ row) => duration(row.latency_ms) },
    { key: "tokens", title: "Tokens", width: 5, number: true, order: "tokens", cell: (/** @type {any} */ row) => total(row.tokens, row.judge_tokens, number) },
    { key: "cost", title: "Cost", width: 6, number: true, order: "cost", cell: (/** @type {any} */ row) => total(row.cost, row.judge_cost, money, row.judge_tokens > 0 && row.judge_cost === null) },
  ];
}

/**
 * What agent and judges used; what the agent used may be unknown.
 * @param {number | null} agent
 * @param {number | null} judges
 * @param {(value: number) => string} show
 * @param {boolean} [unknown] whether what the judges used is unknown
 */
function total(agent, judges, show, unknown = false) {
  if (agent === null) return judges ? `≥ ${show(judges)}` : "–";
  return `${unknown ? "≥ " : ""}${show(agent + (judges ?? 0))}`;
}
