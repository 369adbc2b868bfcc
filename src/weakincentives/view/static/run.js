// @ts-check
/** One run: its figures, and a table of its samples with filters that are all in the address. */

import { ask, isShared, listen } from "./api.js";
import { duration, el, fill, mark, moment, money, number, percent, plural } from "./dom.js";
import { labelColumn, labelCounts, reviewLink } from "./labels.js";
import { link, paramsOf } from "./links.js";
import { histogram, intervalBar } from "./plot.js";
import { status } from "./runs.js";
import "./table.js";

const MAX_CRITERIA = 40;

/** Whether the panel of filters is open: it stays so from one filter to the next. */
let filtersOpen = false;

/** @param {import("./app.js").Screen} screen */
export async function runScreen({ path, query, signal, main, onKey }) {
  const run = await ask("run", { run: path[0] }, signal);
  const id = run.run_id;
  document.title = `${run.title} · WINK Evals`;
  const summary = el("section", { class: "summary", "aria-label": "Figures" });
  const facets = el("div", { class: "facets" });
  const table = /** @type {import("./table.js").WinkTable} */ (el("wink-table"));
  const found = el("span", { class: "count", role: "status" });
  const go = (/** @type {{[name: string]: any}} */ changed) => {
    location.hash = link(["run", id], { ...paramsOf(query), ...changed });
  };
  fill(main, el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), " / ", el("span", {}, id)),
    summary, filters(query, go, found, facets), table);
  figures(summary, run);

  const options = {
    columns: columns(run),
    fetch: (/** @type {number} */ offset, /** @type {number} */ limit) => ask("rows", { run: id, ...paramsOf(query), offset, limit }, signal),
    href: (/** @type {any} */ row) => link(["sample", id, row.sample], { ...paramsOf(query), epoch: row.epoch, experiment: row.experiment }),
    order: query.get("order") ?? "position",
    descending: query.get("desc") === "1",
    onOrder: (/** @type {string} */ order, /** @type {boolean} */ descending) => go({ order: order === "position" ? "" : order, desc: descending ? "1" : "" }),
    label: "Samples",
    onPage: (/** @type {any} */ page) => (found.textContent = `${plural(page.total, "row")}${page.indexed < page.of ? `, ${Math.floor((100 * page.indexed) / page.of)}% searchable` : ""}`),
  };
  await table.show(options);
  onKey({ c: () => go({ verdict: "", failed: [], tool: [], error: [], meta: [], label: [], q: "" }) }, { c: "clear the filters", "↑ ↓": "move in the table", Enter: "open the sample" });

  let indexed = -1;
  const update = async () => {
    const answer = await ask("facets", { run: id }, signal);
    fill(facets, facetGroups(answer, query, go, id, signal));
    const before = indexed;
    indexed = answer.indexed;
    if (before >= 0 && before !== indexed) await table.refresh();
    if (indexed < answer.of && !isShared) setTimeout(() => void update().catch(() => {}), 50);
    else if (before < 0 && table.total && !table.pages.get(0)?.[0]?.input) await table.refresh();
  };
  const stop = listen((runs) => {
    const changed = runs.find((each) => each.run_id === id);
    if (!changed) return;
    void ask("run", { run: id }, signal).then((fresh) => figures(summary, fresh)).catch(() => {});
    void update().then(() => table.refresh()).catch(() => {});
  });
  signal.addEventListener("abort", stop);
  void update().catch(() => {});
}

/**
 * @param {HTMLElement} box
 * @param {any} run
 */
function figures(box, run) {
  const [low, high] = run.interval;
  const open = new Set([...box.querySelectorAll("details[open]")].map((each) => each.id));
  fill(box,
    el("div", { class: "headline" },
      el("h1", {}, run.title, " ", status(run)),
      el("p", { class: "about" }, [run.label, run.experiment, moment(run.created_at)].filter(Boolean).join(" · ")),
      el("p", { class: "verdict" }, run.headline),
      run.total ? reviewLink(run.run_id) : null,
      run.total ? el("div", { class: "big" }, el("strong", {}, percent(run.pass_rate)), intervalBar(run.pass_rate, low, high)) : null,
      run.type_mismatch && el("p", { class: "problem" }, run.type_mismatch)),
    el("dl", { class: "tiles" },
      tile("Passed", `${number(run.passed)} of ${number(run.total)}`),
      tile("Errors", number(run.errors)),
      tile("Mean score", number(run.mean_score)),
      tile("Latency", `${duration(run.latency_ms.p50)}`, `95% under ${duration(run.latency_ms.p95)}`),
      tile("Tokens", number(run.tokens), run.judge_tokens ? `judges ${number(run.judge_tokens)}` : ""),
      tile("Cost", money(run.cost), run.judge_cost ? `judges ${money(run.judge_cost)}` : ""),
      run.epochs && tile(`pass@${run.epochs.k}`, percent(run.epochs.pass_at_k), `pass^${run.epochs.k} ${percent(run.epochs.pass_hat_k)}, ${plural(run.epochs.flaky.length, "flaky sample")}`)),
    el("div", { class: "panels" },
      Object.keys(run.criteria).length ? panel("Criteria", el("table", { class: "bars" }, el("tbody", {},
        Object.entries(run.criteria).slice(0, MAX_CRITERIA).map(([name, mean]) => el("tr", {},
          el("th", { scope: "row" }, el("a", { href: link(["run", run.run_id], { failed: name }) }, name)),
          el("td", {}, el("meter", { min: 0, max: 1, value: Math.max(0, Math.min(1, /** @type {number} */ (mean))), "aria-label": `mean of ${name}` })),
          el("td", { class: "number" }, number(/** @type {number} */ (mean)))))))) : null,
      run.total > run.errors ? panel("Scores", histogram(run.histogram)) : null,
      run.error_groups.length ? panel("Errors", el("ul", { class: "errors" }, run.error_groups.slice(0, 8).map((/** @type {any} */ group) => el("li", {},
        el("span", { class: "count" }, `${group.count} ×`), " ", el("strong", {}, group.type || group.source), group.where ? ` at ${group.where}` : "", el("span", { class: "detail" }, group.message))))) : null,
      run.epochs?.flaky.length ? panel("Flaky samples", el("ul", {}, run.epochs.flaky.slice(0, 8).map((/** @type {any} */ each) => el("li", {},
        el("a", { href: link(["sample", run.run_id, each.sample_id]) }, each.sample_id), ` ${each.passed} of ${each.attempts}`)))) : null));
  for (const id of open) box.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
}

/**
 * @param {string} name
 * @param {string} value
 * @param {string} [more]
 */
function tile(name, value, more = "") {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, more && el("small", {}, more)));
}

/**
 * @param {string} title
 * @param {Node} body
 */
function panel(title, body) {
  return el("section", { class: "panel" }, el("h2", {}, title), body);
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
    ...["failed", "tool", "error", "meta", "label"].flatMap((name) => query.getAll(name).map((value) => ({ name, value }))),
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
 * @param {string} id
 * @param {AbortSignal} signal
 */
function facetGroups(facets, query, go, id, signal) {
  const toggle = (/** @type {string} */ name, /** @type {string} */ value) => {
    const now = query.getAll(name);
    go({ [name]: now.includes(value) ? now.filter((each) => each !== value) : [...now, value] });
  };
  const group = (/** @type {string} */ title, /** @type {string} */ name, /** @type {{[value: string]: number}} */ values, prefix = "") => {
    const entries = Object.entries(values);
    if (!entries.length) return null;
    return el("fieldset", {}, el("legend", {}, title), entries.slice(0, 30).map(([value, count]) => el("button", {
      type: "button", class: "facet", "aria-pressed": String(query.getAll(name).includes(prefix + value)), on: { click: () => toggle(name, prefix + value) },
    }, el("span", {}, value), el("span", { class: "count" }, number(count)))));
  };
  const keys = Object.keys(facets.metadata);
  const sliced = el("div", { class: "sliced" });
  const by = el("select", { "aria-label": "Pass rate by" }, el("option", { value: "" }, "Pass rate by …"), keys.map((key) => el("option", { value: key }, key)));
  by.addEventListener("change", async () => {
    const key = /** @type {HTMLSelectElement} */ (by).value;
    if (!key) return fill(sliced);
    const answer = await ask("slices", { run: id, by: key }, signal);
    return fill(sliced, slices(answer, (value) => toggle("meta", `${key}=${value}`)));
  });
  return [
    keys.length ? el("div", { class: "slice-by" }, by, sliced) : null,
    group("Label of people", "label", labelCounts(facets)),
    group("Failed criterion", "failed", facets.failed),
    group("Error", "error", facets.errors),
    group("Tool called", "tool", facets.tools),
    ...keys.map((key) => group(key, "meta", facets.metadata[key], `${key}=`)),
  ];
}

/**
 * @param {any} answer
 * @param {(value: string) => void} choose
 */
function slices(answer, choose) {
  return el("table", { class: "bars" }, el("caption", {}, `Pass rate by ${answer.by}`), el("tbody", {}, answer.slices.map((/** @type {any} */ slice) => el("tr", {},
    el("th", { scope: "row" }, el("button", { type: "button", class: "quiet", on: { click: () => choose(slice.value) } }, slice.value)),
    el("td", {}, intervalBar(slice.rate, slice.low, slice.high)), el("td", { class: "number" }, percent(slice.rate)), el("td", { class: "number" }, plural(slice.n, "row"))))));
}

/** @param {any} run */
function columns(run) {
  const names = Object.keys(run.criteria);
  const several = names.length > 1 ? names.slice(0, MAX_CRITERIA) : [];
  return [
    { key: "sample", title: "Sample", width: 14, order: "sample", cell: (/** @type {any} */ row) => row.sample },
    ...(run.epochs ? [{ key: "epoch", title: "Epoch", width: 4.5, number: true, order: "epoch", cell: (/** @type {any} */ row) => row.epoch }] : []),
    { key: "verdict", title: "Verdict", width: 5.5, order: "verdict", cell: (/** @type {any} */ row) => mark(row.verdict) },
    { key: "value", title: "Score", width: 4.5, number: true, order: "value", cell: (/** @type {any} */ row) => (row.verdict === "error" ? "–" : number(row.value)) },
    ...several.map((name) => ({
      key: name, title: name, width: 9, number: true, order: `criterion:${name}`,
      cell: (/** @type {any} */ row) => (name in row.scores ? el("span", { class: row.failed.includes(name) ? "failed" : "" }, number(row.scores[name])) : "–"),
    })),
    ...(run.labelled ? [labelColumn] : []),
    { key: "why", title: "Why", width: 14, grow: 2, cell: (/** @type {any} */ row) => el("span", { title: row.why, class: row.verdict === "pass" ? "note" : "" }, row.why) },
    { key: "input", title: "Input", width: 12, grow: 2, cell: (/** @type {any} */ row) => el("span", { title: row.input }, row.input) },
    { key: "output", title: "Output", width: 12, grow: 2, cell: (/** @type {any} */ row) => el("span", { title: row.output }, row.output) },
    { key: "latency", title: "Time", width: 5.5, number: true, order: "latency", cell: (/** @type {any} */ row) => duration(row.latency_ms) },
    { key: "tokens", title: "Tokens", width: 5.5, number: true, order: "tokens", cell: (/** @type {any} */ row) => number(row.tokens + row.judge_tokens) },
    { key: "cost", title: "Cost", width: 5, number: true, order: "cost", cell: (/** @type {any} */ row) => (row.cost === null && row.judge_cost === null ? "–" : money((row.cost ?? 0) + (row.judge_cost ?? 0))) },
  ];
}
