// @ts-check
/** All runs: headline, interval, earlier runs of the same suite, and what is going on now. */

import { ask, isShared, listen } from "./api.js";
import { knownPart, el, ends, fill, moment, money, number, percent, plural, short } from "./dom.js";
import { link } from "./links.js";
import { intervalBar, sparkline } from "./plot.js";
import { tagChip } from "./tags.js";

const PAGE = 50;
const MAX_COMPARED = 5;

/** @param {import("./app.js").Screen} screen */
export async function runsScreen({ query, signal, main }) {
  document.title = "Runs · WINK Evals";
  const words = query.get("q") ?? "";
  /** @type {Set<string>} */
  const chosen = new Set();
  const search = /** @type {HTMLInputElement} */ (el("input", {
    type: "search", value: words, placeholder: "Filter: suite, agent, model, status, tag=value", "aria-label": "Filter runs",
  }));
  search.addEventListener("change", () => (location.hash = link([], { q: search.value.trim() })));
  const compare = el("a", { class: "button primary", "aria-disabled": "true", title: "Tick two to five runs" }, "Compare");
  const count = el("span", { class: "count", role: "status" });
  const list = el("ol", { class: "runs" }, heads());
  const more = el("button", { type: "button" }, "Show more");
  fill(main, el("h1", {}, "Runs"), el("div", { class: "bar" }, isShared ? null : search, count, el("span", { class: "space" }), compare), list, more);

  /** @type {Map<string, HTMLElement>} */
  const shown = new Map();
  const choose = (/** @type {string} */ run, /** @type {boolean} */ on) => {
    if (on) chosen.add(run);
    else chosen.delete(run);
    const ready = chosen.size >= 2 && chosen.size <= MAX_COMPARED;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
    compare.setAttribute("aria-disabled", String(!ready));
    if (ready) compare.setAttribute("href", link(["compare"], { run: oldestFirst([...chosen]) }));
    else compare.removeAttribute("href");
  };
  const oldestFirst = (/** @type {string[]} */ runs) => {
    const order = [...shown.keys()];
    return runs.sort((a, b) => order.indexOf(b) - order.indexOf(a));
  };
  const load = async () => {
    const answer = await ask("runs", { q: words, offset: shown.size, limit: PAGE }, signal);
    for (const run of answer.runs) {
      const item = runItem(run, answer.sparks[run.run_id] ?? [], chosen.has(run.run_id), choose);
      shown.set(run.run_id, item);
      list.append(item);
    }
    count.textContent = plural(answer.total, "run");
    more.hidden = shown.size >= answer.total;
    if (!answer.total) fill(list, empty(words));
  };
  more.addEventListener("click", () => void load());
  await load();

  const stop = listen((runs) => {
    for (const run of runs.reverse()) {
      const old = shown.get(run.run_id);
      const item = runItem(run, sparkOf(old), chosen.has(run.run_id), choose);
      if (old) old.replaceWith(item);
      else if (!words) list.firstElementChild?.after(item);
      else continue;
      list.querySelector(".empty")?.remove();
      shown.set(run.run_id, item);
    }
  }, (connected) => main.classList.toggle("offline", !connected));
  signal.addEventListener("abort", stop);
}

/** @param {HTMLElement | undefined} item */
function sparkOf(item) {
  return JSON.parse(item?.dataset.spark ?? "[]");
}

/** @param {string} words */
function empty(words) {
  return el("li", { class: "empty empty-state" }, words
    ? ["No run matches. ", el("a", { href: "#/" }, "Show all runs")]
    : [el("p", {}, "No runs yet. They appear here as soon as one starts:"), el("code", {}, "wink eval run FILE.py"), " or ", el("code", {}, "wink eval init")]);
}

function heads() {
  return el("li", { class: "heads", "aria-hidden": "true" },
    ["", "Run", "Pass rate", "95% interval", "Trend", "Passed", "Status", "Started"].map((title) => el("span", {}, title)));
}

/**
 * @param {any} run
 * @param {(number | null)[]} spark
 * @param {boolean} checked
 * @param {(run: string, on: boolean) => void} choose
 */
function runItem(run, spark, checked, choose) {
  const box = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", "aria-label": `Compare ${run.run_id}`, checked }));
  box.addEventListener("change", () => choose(run.run_id, box.checked));
  const [low, high] = run.interval;
  const tags = Object.entries(run.tags);
  const item = el("li", { class: `run ${run.status}` },
    box,
    el("div", { class: "what" },
      el("a", { class: "clamp two-lines", href: link(["run", run.run_id]) }, run.title),
      el("span", { class: "about" },
        run.label || run.experiment ? el("span", { class: "ellipsis" }, [run.label, run.experiment].filter(Boolean).join(" · ")) : null,
        el("span", { class: "id ellipsis", title: run.run_id }, run.run_id)),
      tags.length ? el("span", { class: "tags" }, tags.map(([name, value]) => tagChip(name, String(value)))) : null),
    el("div", { class: "rate" }, run.total
      ? [el("strong", {}, percent(run.pass_rate)), el("span", { class: "range" }, ends(low, high))]
      : el("span", { class: "note" }, "no rows")),
    el("div", { class: "bar-cell" }, run.total ? intervalBar(run.pass_rate, low, high) : null),
    el("div", { class: "trend" }, sparkline(spark)),
    el("div", { class: "counts" },
      el("span", {}, `${number(run.passed)} of ${number(run.total)}`),
      run.errors ? el("span", { class: "mark error" }, plural(run.errors, "error")) : null,
      el("span", { class: "note" }, run.total ? used(run) : "")),
    el("div", { class: "state" }, status(run)),
    el("span", { class: "when", title: run.created_at }, moment(run.created_at)),
    run.queue?.text ? el("div", { class: "queue-line" }, run.queue.stale ? el("span", { class: "mark error" }, "! ") : null, run.queue.text) : null);
  item.dataset.spark = JSON.stringify(spark);
  return item;
}

/** @param {any} run */
function used(run) {
  const cost = run.cost === null ? "" : knownPart(run.cost, run.rows_without_cost, money);
  const tokens = run.tokens === null ? "tokens unknown" : run.tokens ? `${knownPart(run.tokens, run.rows_without_tokens, short)} tokens` : "";
  return [cost, tokens].filter(Boolean).join(" · ");
}

/** @param {any} run */
export function status(run) {
  if (run.status === "running") {
    const done = run.planned ? ` ${Math.floor((100 * run.total) / run.planned)}%` : "";
    return [
      el("span", { class: "chip running" }, `running${done}`),
      run.planned ? el("progress", { max: run.planned, value: run.total, "aria-label": "progress" }) : null,
    ];
  }
  const words = { interrupted: "interrupted: it ended before its last sample", damaged: run.note };
  return [
    el("span", { class: `chip ${run.status}`, title: words[/** @type {"damaged"} */ (run.status)] ?? run.note }, run.status),
    run.mixed ? el("span", { class: "chip", title: run.mixed }, "mixed versions") : null,
  ];
}
