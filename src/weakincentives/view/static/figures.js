// @ts-check
/** The figures of a run: rate and interval, tiles, and panels of what is behind them. */

import { decimals, duration, el, fill, known, moment, money, number, percent, plural, short } from "./dom.js";
import { link } from "./links.js";
import { histogram, intervalBar, sparkline } from "./plot.js";

const MAX_LISTED = 8;

/**
 * What the agent and the judges have of a figure, and for how many rows the agent's part is unknown.
 * @param {number | null} agent
 * @param {number | null} judges
 * @param {number} unknown
 * @param {(value: number) => string} text
 */
function parts(agent, judges, unknown, text) {
  const both = judges === 0 ? [] : [`agent ${known(agent, text)}`, `judges ${known(judges, text)}`];
  return [...both, ...(unknown && agent !== null ? [`unknown for ${plural(unknown, "row")}`] : [])].join(", ");
}

/**
 * @param {HTMLElement} box
 * @param {any} run
 * @param {HTMLElement} sliced the panel of slices, which fills itself
 */
export function figures(box, run, sliced) {
  const [low, high] = run.interval;
  const open = new Set([...box.querySelectorAll("details[open]")].map((each) => each.id));
  const big = (/** @type {number} */ value) => (value < 1e6 ? number(value) : short(value));
  const tokens = parts(run.agent_tokens, run.judge_tokens, run.rows_without_tokens, short);
  const judges = run.judge_tokens ? run.judge_cost : run.judge_cost ?? 0; // without judges, nothing is unknown
  const cost = parts(run.agent_cost, judges, run.rows_without_cost, money);
  sliced.className = "panel sliced";
  fill(box,
    el("div", { class: "figures" },
      el("div", { class: "headline" },
        el("div", { class: "big" }, el("strong", {}, run.total ? percent(run.pass_rate) : "–"), run.total ? intervalBar(run.pass_rate, low, high) : null,
          run.earlier.length ? sparkline([...run.earlier.map((/** @type {any} */ each) => each.pass_rate), run.pass_rate]) : null),
        el("p", { class: "verdict" }, run.headline),
        run.type_mismatch && el("p", { class: "problem" }, run.type_mismatch),
        run.labels_problem && el("p", { class: "problem" }, run.labels_problem)),
      el("dl", { class: "tiles" },
        tile("Passed", `${number(run.passed)} of ${number(run.total)}`, run.planned && run.planned > run.total ? `${number(run.planned)} planned` : ""),
        tile("Errors", number(run.errors), sources(run.errors_by_source)),
        tile("Mean score", run.mean_score === null ? "–" : number(run.mean_score)),
        tile("Latency", duration(run.latency_ms.p50), run.latency_ms.p95 === null ? "" : `95% under ${duration(run.latency_ms.p95)}`),
        tile("Tokens", known(run.tokens, big), tokens),
        tile("Cost", known(run.cost, money), cost),
        run.active_seconds ? tile("Time", duration(run.active_seconds * 1000)) : null,
        run.epochs && tile(`pass@${run.epochs.k}`, percent(run.epochs.pass_at_k), `pass^${run.epochs.k} ${percent(run.epochs.pass_hat_k)}`))),
    el("div", { class: "panels" },
      queue(run.queue),
      Object.keys(run.criteria).length ? panel("Criteria, mean value", criteria(run)) : null,
      run.total > run.errors ? panel("Scores", histogram(run.histogram)) : null,
      sliced,
      run.error_groups.length ? panel("Errors", errors(run)) : null,
      run.epochs?.flaky.length ? panel(plural(run.epochs.flaky.length, "flaky sample"), flaky(run)) : null),
    about(run));
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
 * @param {...Node} body
 */
function panel(title, ...body) {
  return el("section", { class: "panel" }, el("h2", {}, title), el("div", { class: "scroll" }, ...body));
}

/** @param {{[source: string]: number}} by */
function sources(by) {
  return Object.entries(by).map(([source, count]) => `${source} ${number(count)}`).join(", ");
}

/** @param {any} run */
function criteria(run) {
  return el("table", { class: "bars" }, el("tbody", {}, Object.entries(run.criteria).map(([name, mean]) => {
    const share = Math.max(0, Math.min(1, /** @type {number} */ (mean)));
    const bar = el("span");
    bar.style.width = `${share * 100}%`;
    return el("tr", {},
      el("th", { scope: "row" }, el("a", { href: link(["run", run.run_id], { failed: name }), title: `Samples that failed ${name}` }, name)),
      el("td", { class: "wide" }, el("span", { class: "meter", "aria-hidden": "true" }, bar)),
      el("td", { class: "number" }, number(Number(decimals(/** @type {number} */ (mean), 3)))));
  })));
}

/** @param {any} run */
function errors(run) {
  return el("ul", { class: "errors" }, run.error_groups.slice(0, MAX_LISTED).map((/** @type {any} */ group) => el("li", {},
    el("span", { class: "count" }, `${number(group.count)} ×`), " ", el("strong", {}, group.type || group.source), group.where ? ` at ${group.where}` : "",
    el("span", { class: "detail" }, group.message),
    el("span", { class: "detail" }, group.samples.slice(0, 3).map((/** @type {string} */ sample) => [el("a", { href: link(["sample", run.run_id, sample]) }, sample), " "]).flat()))));
}

/** @param {any} run */
function flaky(run) {
  return el("ul", { class: "errors" }, run.epochs.flaky.slice(0, 50).map((/** @type {any} */ each) => el("li", {},
    el("a", { href: link(["sample", run.run_id, each.sample_id]) }, each.sample_id), el("span", { class: "note" }, ` passed ${each.passed} of ${each.attempts}`))));
}

/** @param {any} queue what workers on a queue do for this run */
function queue(queue) {
  if (!queue || (!queue.text && !queue.workers.length)) return null;
  return panel("Workers",
    queue.text ? el("p", { class: queue.stale ? "notice" : "note" }, queue.text) : el("span"),
    queue.collect ? el("p", {}, el("code", { class: "command" }, queue.collect)) : el("span"),
    el("ul", { class: "workers" }, queue.workers.map((/** @type {any} */ worker) => el("li", { class: worker.silent ? "silent" : "" },
      el("span", { class: "id" }, worker.name), el("span", {}, plural(worker.results, "result")), worker.errors ? el("span", { class: "mark error" }, plural(worker.errors, "error")) : null,
      el("span", { class: worker.silent ? "silent" : "note" }, worker.silent ? `silent since ${moment(worker.last_result_at)}` : moment(worker.last_result_at))))));
}

/** @param {any} run */
function about(run) {
  const entries = /** @type {[string, string][]} */ ([
    ["Run", run.run_id],
    ["Dataset", run.dataset],
    ["Dataset hash", run.dataset_digest],
    ["Agent", [run.agent, run.agent_version?.slice(0, 12)].filter(Boolean).join(" ")],
    ["Pinned to", run.expect],
    ["Model", run.model ?? ""],
    ["Evaluators", run.evaluators.map((/** @type {any} */ each) => each.name).join(", ")],
    ["Command", run.command.join(" ")],
    ["Commit", run.git_commit ?? ""],
    ["Versions", Object.entries(run.packages).map(([name, version]) => `${name} ${version}`).join(", ")],
    ["Scored again from", run.parent ?? ""],
    ["Started", run.created_at],
    ["Finished", run.finished_at ?? ""],
    ["Configuration", Object.entries(run.config).filter(([, value]) => value !== null).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join("  ")],
  ]);
  return el("details", { class: "about-run", id: "about-run" }, el("summary", {}, "About this run"),
    el("dl", { class: "metadata card panel" }, entries.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", { class: "id" }, value)])));
}
