// @ts-check
/**
 * Two to five runs side by side: the verdict with its interval, what flipped, both outputs, and the two
 * trajectories aligned, with the step at which they first diverge.
 */

import { ask, saveToo } from "./api.js";
import { diffOf } from "./diff.js";
import { duration, el, fill, mark, money, number, percent, percents, plural, sum } from "./dom.js";
import { link, paramsOf } from "./links.js";
import { intervalBar, scatter } from "./plot.js";
import { inline, textBlock } from "./text.js";

const LETTERS = "ABCDE";

/** @param {import("./app.js").Screen} screen */
export async function compareScreen(screen) {
  const runs = screen.query.getAll("run");
  if (screen.query.get("sample")) return sampleComparison(screen, runs);
  const { query, signal, main } = screen;
  const kind = query.get("kind") ?? "";
  const answer = await ask("compare", { run: runs, kind }, signal);
  document.title = "Compare · WINK Evals";
  const where = el("section", { class: "panel", "aria-label": "Where they diverge" });
  const plot = quality(answer.runs);
  fill(main,
    el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), "/", el("span", {}, "Compare")),
    el("h1", {}, `Compare ${plural(runs.length, "run")}`),
    answer.comparisons.length > 1
      ? el("ul", { class: "verdicts" }, answer.comparisons.map((/** @type {any} */ each) => el("li", {}, verdict(each, true))))
      : verdict(answer.comparisons[0], false),
    overview(answer),
    el("div", { class: "all-measures" }, answer.comparisons.map((/** @type {any} */ each) => measures(each))),
    el("div", { class: "panels" }, plot, where),
    matrix(answer, query, runs, kind, signal));
  if (runs.length === 2 && answer.comparisons[0].fixed + answer.comparisons[0].broken) {
    fill(where, el("h2", {}, "Where they diverge"), el("p", { class: "note" }, "Aligning trajectories …"));
    const found = await ask("divergences", { run: runs }, signal);
    fill(where, divergences(found, runs));
  } else where.remove();
}

/**
 * @param {any} each
 * @param {boolean} several
 */
function verdict(each, several) {
  const words = each.verdict.slice(0, 1).toUpperCase() + each.verdict.slice(1);
  const said = several && !each.verdict.startsWith(each.label) ? `${each.label}: ${each.verdict}` : words;
  return el("div", { class: `conclusion ${each.outcome}` },
    el("p", { class: several ? "" : "said" }, said),
    each.incomparable.map((/** @type {string} */ text) => el("p", { class: "problem" }, `Not measured the same way: ${text}`)),
    each.warnings.filter((/** @type {string} */ text) => !each.incomparable.includes(text)).map((/** @type {string} */ text) => el("p", { class: "note" }, text)),
    el("p", { class: "counts note" }, `${number(each.fixed)} fixed, ${number(each.broken)} broken, ${number(each.both)} passed in both, ${number(each.neither)} in neither`));
}

/** @param {any} answer the runs as columns */
function overview(answer) {
  const line = (/** @type {string} */ title, /** @type {(run: any, at: number) => any} */ cell) =>
    el("tr", {}, el("th", { scope: "row" }, title), answer.runs.map((/** @type {any} */ run, /** @type {number} */ at) => el("td", {}, cell(run, at))));
  const change = (/** @type {any} */ run, /** @type {number} */ at) => {
    if (!at) return el("span", { class: "note" }, "baseline");
    const each = answer.comparisons[at - 1], measure = each.measures[0];
    return [el("span", { class: `chip ${each.outcome}` }, measure.delta), el("span", { class: "about" }, measure.interval)];
  };
  return el("table", { class: "compared" },
    el("thead", {}, el("tr", {}, el("td"), answer.runs.map((/** @type {any} */ run, /** @type {number} */ at) => el("th", { scope: "col" },
      el("span", { class: "letter" }, LETTERS[at]), el("a", { href: link(["run", run.run_id]) }, run.title),
      el("span", { class: "about" }, [run.label, run.experiment].filter(Boolean).join(" · ")), el("span", { class: "id" }, run.run_id))))),
    el("tbody", {},
      line("Pass rate", (run) => [el("strong", {}, percent(run.pass_rate)), " ", intervalBar(run.pass_rate, run.interval[0], run.interval[1]), el("span", { class: "about" }, percents(run.interval[0], run.interval[1]))]),
      line("Change", change),
      line("Passed", (run) => [`${number(run.passed)} of ${number(run.total)}`, run.errors ? el("span", { class: "mark error" }, ` ${plural(run.errors, "error")}`) : null]),
      line("Median latency", (run) => duration(run.latency_ms.p50)),
      line("Tokens", (run) => sum(run.tokens, run.rows_without_tokens, number)),
      line("Cost", (run) => sum(run.cost, run.rows_without_cost, money))));
}

/** @param {any} each */
function measures(each) {
  return el("details", { class: "measures" }, el("summary", {}, `All measures of ${each.label}`), el("table", { class: "compared" },
    el("thead", {}, el("tr", {}, ["Measure", "A", each.label, "Difference", "Interval", "Test", ""].map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, each.measures.map((/** @type {any} */ measure) => el("tr", {},
      el("th", { scope: "row" }, measure.name), el("td", { class: "number" }, measure.before), el("td", { class: "number" }, measure.after),
      el("td", { class: "number" }, measure.delta), el("td", {}, measure.interval), el("td", {}, measure.evidence),
      el("td", {}, measure.outcome === "none" ? "" : el("span", { class: `chip ${measure.outcome}` }, measure.outcome)))))));
}

/** @param {any[]} runs */
function quality(runs) {
  const points = runs.flatMap((run, at) => (run.cost ? [{ label: `${LETTERS[at]}${run.rows_without_cost ? " ≥" : ""}`, cost: run.cost, rate: run.pass_rate, low: run.interval[0], high: run.interval[1] }] : []));
  return points.length > 1 ? el("section", { class: "panel" }, el("h2", {}, "Cost and quality"), scatter(points)) : null;
}

/**
 * @param {any} found
 * @param {string[]} runs
 */
function divergences(found, runs) {
  const [first] = found.divergences;
  return [
    el("h2", {}, "Where they diverge"),
    first ? el("p", {}, found.summary ? inline(`${found.summary[0].toUpperCase()}${found.summary.slice(1)}.`) : "None of them diverges.") : el("p", { class: "note" }, "No trajectories to align."),
    el("ul", { class: "errors" }, found.divergences.slice(0, 8).map((/** @type {any} */ each) => el("li", {},
      el("span", { class: "count" }, `${each.count} ×`), " ", ...inline(each.divergence), " ",
      each.samples.slice(0, 3).map((/** @type {string} */ sample) => [el("a", { href: link(["compare"], { run: runs, sample }) }, sample), " "]).flat()))),
    found.flips > found.of ? el("p", { class: "note" }, `The first ${number(found.of)} of ${number(found.flips)} flips were aligned.`) : null,
  ];
}

/**
 * The samples with a column for each run.
 * @param {any} answer
 * @param {URLSearchParams} query
 * @param {string[]} runs
 * @param {string} kind
 * @param {AbortSignal} signal
 */
function matrix(answer, query, runs, kind, signal) {
  const choose = (/** @type {string} */ name) => (location.hash = link(["compare"], { ...paramsOf(query), kind: name }));
  const body = el("tbody");
  const more = el("button", { type: "button" }, "Show more");
  const add = (/** @type {any} */ page) => {
    for (const row of page.rows) {
      body.append(matrixRow(row, runs));
      for (const name of runs.length === 2 ? ["aligned", "flip"] : []) saveToo(name, { run: runs, sample: row.sample });
    }
    more.hidden = body.childElementCount >= page.total;
  };
  more.addEventListener("click", () => void ask("compare", { run: runs, kind, offset: body.childElementCount }, signal).then(add));
  add(answer);
  const kinds = { "": ["different", "different"], broken: ["broken", "broken"], fixed: ["fixed", "fixed"], failing: ["failing", "still failing"], all: ["all", "all"] };
  return el("section", { "aria-label": "Samples side by side" }, el("h2", {}, "Samples"),
    el("div", { class: "bar" }, el("div", { class: "switch", role: "group", "aria-label": "Kind" }, Object.entries(kinds).map(([name, [key, title]]) => el("button", {
      type: "button", "aria-pressed": String(name === kind), on: { click: () => choose(name) },
    }, `${title} ${number(answer.kinds[key])}`)))),
    answer.total ? el("table", { class: "matrix" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Sample"), runs.map((run, at) => el("th", { scope: "col" }, el("span", { class: "letter" }, LETTERS[at]), el("span", { class: "id" }, run))))), body) : el("p", { class: "card empty-state" }, "No samples of this kind."), more);
}

/**
 * @param {any} row
 * @param {string[]} runs
 */
function matrixRow(row, runs) {
  const first = row.cells[0];
  const other = Math.max(1, row.cells.findIndex((/** @type {any} */ cell, /** @type {number} */ at) => at && cell && first && (cell.verdict === "pass") !== (first.verdict === "pass")));
  const pair = (/** @type {number} */ at) => link(["compare"], { run: [runs[0], runs[at || other]], sample: row.sample });
  return el("tr", {},
    el("th", { scope: "row" }, el("a", { href: pair(other) }, row.sample), el("span", { class: "note clamp two-lines" }, row.input)),
    row.cells.map((/** @type {any} */ cell, /** @type {number} */ at) => {
      if (!cell) return el("td", { class: "note" }, "not in this run");
      const passed = cell.verdict === "pass", before = first?.verdict === "pass";
      const kind = at && first && passed !== before ? (passed ? "fixed" : "broken") : "";
      const epochs = cell.attempts > 1 ? ` ${cell.passes} of ${cell.attempts}` : "";
      return el("td", { class: kind }, at ? el("a", { href: pair(at), title: "Side by side with A" }, mark(cell.verdict)) : mark(cell.verdict), el("span", { class: "note" }, epochs),
        kind ? el("span", { class: "note" }, ` ${kind}`) : null,
        el("span", { class: "out clamp text" }, cell.output), passed ? null : el("span", { class: "note clamp two-lines" }, cell.why));
    }));
}

/**
 * @param {import("./app.js").Screen} screen
 * @param {string[]} runs
 */
async function sampleComparison({ query, signal, main, onKey }, runs) {
  const sample = query.get("sample") ?? "";
  const epoch = query.get("epoch") ?? "";
  const pair = runs.slice(0, 2);
  const [answer, flip] = await Promise.all([ask("aligned", { run: pair, sample, epoch }, signal), ask("flip", { run: pair, sample, epoch }, signal)]);
  document.title = `${sample} · Compare · WINK Evals`;
  const back = link(["compare"], { run: runs });
  fill(main,
    el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), "/", el("a", { href: back }, "Compare"), "/", el("span", { title: sample }, sample)),
    el("h1", {}, sample),
    answer.divergence ? el("p", { class: "conclusion said" }, inline(`First divergence at ${answer.divergence.text}.`)) : el("p", { class: "note" }, "The trajectories do not diverge."),
    el("div", { class: "two" }, answer.sides.map((/** @type {any} */ side, /** @type {number} */ at) => sideOf(side, LETTERS[at], pair[at], sample))),
    flip.criteria.length ? el("section", { "aria-label": "Criteria that flipped" }, el("h2", {}, "Criteria that flipped"), el("ul", { class: "scores" },
      flip.criteria.map((/** @type {any} */ each) => el("li", {}, el("span", { class: "flipped" }, mark(each.before ? "pass" : "fail"), "→", mark(each.after ? "pass" : "fail")), el("strong", {}, each.criterion),
        el("span", { class: "reason text" }, [each.reason_before, each.reason_after].filter(Boolean).join(" → ")))))) : null,
    answer.diff.length ? el("section", { class: "part", "aria-label": "What changed in the output" }, el("h2", {}, "Output of A → output of B"), diffOf(answer.diff)) : null,
    answer.steps.length ? el("section", { "aria-label": "Steps" }, el("h2", {}, "Steps"), steps(answer)) : null);
  onKey({ b: () => (location.hash = back), d: () => document.querySelector(".diverges")?.scrollIntoView({ block: "center" }) }, { b: "back to the comparison", d: "to the first divergence" });
}

/**
 * @param {any} side
 * @param {string} letter
 * @param {string} run
 * @param {string} sample
 */
function sideOf(side, letter, run, sample) {
  if (!side) return el("section", { class: "part" }, el("h2", {}, `${letter} ${run}`), el("p", { class: "note" }, "This run does not have the sample."));
  return el("section", { class: "part", "aria-label": `Run ${letter}` },
    el("h2", {}, el("span", { class: "letter" }, letter), el("a", { href: link(["sample", run, sample], { epoch: side.epoch, experiment: side.experiment }) }, run), " ", mark(side.verdict)),
    el("p", { class: "about" }, duration(side.latency_ms)),
    side.reason && side.verdict !== "pass" ? el("p", { class: "why" }, side.reason) : null,
    textBlock(side.output, { label: `output of ${letter}` }));
}

/** @param {any} answer */
function steps(answer) {
  return el("ol", { class: "steps" }, answer.steps.map((/** @type {any} */ pair, /** @type {number} */ index) => {
    const diverges = answer.divergence?.index === index;
    return el("li", { class: `step ${pair.relation}${diverges ? " diverges" : ""}` },
      diverges ? el("p", { class: "divergence" }, el("span", {}, inline(answer.divergence.text))) : null,
      stepOf(pair.before, pair.relation === "same", "A"), stepOf(pair.relation === "same" ? pair.before : pair.after, pair.relation === "same", "B"));
  }), answer.left_out ? el("li", { class: "note" }, `${number(answer.left_out)} more steps are not shown.`) : null);
}

/**
 * @param {any} step
 * @param {boolean} same
 * @param {string} side
 */
function stepOf(step, same, side) {
  if (!step) return el("div", { class: "absent" }, el("span", { class: "label" }, `not in ${side}`));
  return el("div", { class: "cell" },
    el("span", { class: step.kind === "tool" ? "tool-name" : "role" }, step.label),
    step.arguments && el("pre", { class: `text${same ? " clamp" : ""}` }, step.arguments),
    step.text && el("div", { class: `text${same ? " clamp" : ""}` }, step.text),
    step.result !== null && el("div", { class: `result text${same ? " clamp" : ""}` }, "→ ", step.result));
}
