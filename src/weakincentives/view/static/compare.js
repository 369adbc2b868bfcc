// @ts-check
/**
 * Two to five runs side by side: the verdict with its interval, what flipped, both outputs, and the two
 * trajectories aligned, with the step at which they first diverge.
 */

import { ask } from "./api.js";
import { diffOf } from "./diff.js";
import { duration, el, fill, mark, money, number, percent, plural } from "./dom.js";
import { link, paramsOf } from "./links.js";
import { intervalBar, scatter } from "./plot.js";
import { textBlock } from "./text.js";

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
  fill(main,
    el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), " / ", el("span", {}, "Compare")),
    el("h1", {}, `Compare ${plural(runs.length, "run")}`),
    answer.comparisons.map((/** @type {any} */ each) => verdict(each)),
    el("table", { class: "compared" }, el("caption", {}, "The runs"),
      el("thead", {}, el("tr", {}, ["", "Run", "Pass rate", "95% interval", "Passed", "Errors", "Tokens", "Cost"].map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, answer.runs.map((/** @type {any} */ run, /** @type {number} */ at) => el("tr", {},
        el("th", { scope: "row" }, LETTERS[at]),
        el("td", {}, el("a", { href: link(["run", run.run_id]) }, run.title), " ", el("span", { class: "id" }, run.run_id), el("span", { class: "about" }, [run.label, run.experiment].filter(Boolean).join(" · "))),
        el("td", { class: "number" }, percent(run.pass_rate)),
        el("td", {}, intervalBar(run.pass_rate, run.interval[0], run.interval[1]), " ", `${percent(run.interval[0])} to ${percent(run.interval[1])}`),
        el("td", { class: "number" }, `${number(run.passed)} of ${number(run.total)}`), el("td", { class: "number" }, number(run.errors)),
        el("td", { class: "number" }, number(run.tokens)), el("td", { class: "number" }, money(run.cost)))))),
    answer.comparisons.map((/** @type {any} */ each) => measures(each)),
    quality(answer.runs),
    where,
    flips(answer, query, runs, kind, signal));
  if (runs.length === 2 && answer.comparisons[0].fixed + answer.comparisons[0].broken) {
    fill(where, el("h2", {}, "Where they diverge"), el("p", { class: "note" }, "Aligning trajectories …"));
    const found = await ask("divergences", { run: runs }, signal);
    fill(where, divergences(found, runs));
  } else where.remove();
}

/** @param {any} each */
function verdict(each) {
  return el("div", { class: `conclusion ${each.outcome}` },
    el("p", {}, each.verdict.slice(0, 1).toUpperCase() + each.verdict.slice(1)),
    each.incomparable.map((/** @type {string} */ text) => el("p", { class: "problem" }, `Not measured alike: ${text}`)),
    each.warnings.filter((/** @type {string} */ text) => !each.incomparable.includes(text)).map((/** @type {string} */ text) => el("p", { class: "note" }, text)),
    el("p", { class: "counts" }, `${number(each.fixed)} fixed, ${number(each.broken)} broken, ${number(each.both)} passed in both, ${number(each.neither)} in neither`));
}

/** @param {any} each */
function measures(each) {
  return el("details", { class: "measures" }, el("summary", {}, `All measures of ${each.label}`), el("table", { class: "compared" },
    el("thead", {}, el("tr", {}, ["Measure", "A", each.label, "Difference", "Interval", "Test", ""].map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, each.measures.map((/** @type {any} */ measure) => el("tr", {},
      el("th", { scope: "row" }, measure.name), el("td", { class: "number" }, measure.before), el("td", { class: "number" }, measure.after),
      el("td", { class: "number" }, measure.delta), el("td", {}, measure.interval), el("td", {}, measure.evidence),
      el("td", {}, measure.outcome === "none" ? "" : measure.outcome))))));
}

/** @param {any[]} runs */
function quality(runs) {
  const points = runs.flatMap((run, at) => (run.cost ? [{ label: LETTERS[at], cost: run.cost, rate: run.pass_rate, low: run.interval[0], high: run.interval[1] }] : []));
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
    first ? el("p", {}, found.summary ? `${found.summary[0].toUpperCase()}${found.summary.slice(1)}.` : "None of them diverges.") : el("p", { class: "note" }, "No trajectories to align."),
    el("ul", { class: "errors" }, found.divergences.slice(0, 8).map((/** @type {any} */ each) => el("li", {},
      el("span", { class: "count" }, `${each.count} ×`), " ", each.divergence, " ",
      each.samples.slice(0, 3).map((/** @type {string} */ sample) => [el("a", { href: link(["compare"], { run: runs, sample }) }, sample), " "]).flat()))),
    found.flips > found.of ? el("p", { class: "note" }, `The first ${number(found.of)} of ${number(found.flips)} flips were aligned.`) : null,
  ];
}

/**
 * @param {any} answer
 * @param {URLSearchParams} query
 * @param {string[]} runs
 * @param {string} kind
 * @param {AbortSignal} signal
 */
function flips(answer, query, runs, kind, signal) {
  const choose = (/** @type {string} */ name) => (location.hash = link(["compare"], { ...paramsOf(query), kind: name }));
  const list = el("ol", { class: "flips" });
  const more = el("button", { type: "button" }, "Show more");
  const add = (/** @type {any} */ page) => {
    for (const row of page.rows) list.append(flipItem(row, answer, runs));
    more.hidden = list.childElementCount >= page.total;
  };
  more.addEventListener("click", () => void ask("compare", { run: runs, kind, offset: list.childElementCount }, signal).then(add));
  add(answer);
  return el("section", { "aria-label": "Samples that flipped" }, el("h2", {}, `${plural(answer.total, "sample")} that flipped`),
    el("div", { class: "switch", role: "group", "aria-label": "Kind" }, ["", "broken", "fixed"].map((name) => el("button", {
      type: "button", "aria-pressed": String(name === kind), on: { click: () => choose(name) },
    }, name || "all"))),
    answer.total ? list : el("p", { class: "note" }, "None."), more);
}

/**
 * @param {any} row
 * @param {any} answer
 * @param {string[]} runs
 */
function flipItem(row, answer, runs) {
  const several = answer.comparisons.length > 1;
  const pair = [runs[0], runs[Number(Object.keys(row.flips)[0])]];
  return el("li", {},
    el("div", { class: "flip-head" },
      el("a", { href: link(["compare"], { run: pair, sample: row.sample, epoch: row.epoch }) }, row.sample),
      row.epoch > 1 ? ` epoch ${row.epoch}` : "",
      Object.entries(row.flips).map(([at, flip]) => el("span", { class: `chip ${flip.fixed ? "better" : "worse"}` },
        `${flip.fixed ? "fixed" : "broken"}${several ? ` in ${LETTERS[Number(at)]}` : ""}${flip.error ? ", an error" : ""}`)),
      el("span", { class: "note clamp" }, row.input)),
    row.sides && el("div", { class: "two" }, row.sides.map((/** @type {any} */ side) => side && el("div", {}, mark(side.verdict), " ",
      el("span", { class: "clamp" }, side.output || side.why), side.verdict === "pass" ? null : el("span", { class: "note clamp" }, side.why)))));
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
    el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), " / ", el("a", { href: back }, "Compare"), " / ", el("span", {}, sample)),
    el("h1", {}, sample),
    answer.divergence ? el("p", { class: "conclusion" }, `First divergence at ${answer.divergence.text}.`) : el("p", { class: "note" }, "The trajectories do not diverge."),
    el("div", { class: "two" }, answer.sides.map((/** @type {any} */ side, /** @type {number} */ at) => sideOf(side, LETTERS[at], pair[at], sample))),
    flip.criteria.length ? el("section", { "aria-label": "Criteria that flipped" }, el("h2", {}, "Criteria that flipped"), el("ul", { class: "scores" },
      flip.criteria.map((/** @type {any} */ each) => el("li", {}, el("strong", {}, each.criterion), mark(each.before ? "pass" : "fail"), "→", mark(each.after ? "pass" : "fail"),
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
    el("h2", {}, `${letter} `, el("a", { href: link(["sample", run, sample], { epoch: side.epoch, experiment: side.experiment }) }, run), " ", mark(side.verdict)),
    el("p", { class: "about" }, duration(side.latency_ms)),
    side.reason && side.verdict !== "pass" ? el("p", { class: "why" }, side.reason) : null,
    textBlock(side.output, { label: `output of ${letter}` }));
}

/** @param {any} answer */
function steps(answer) {
  return el("ol", { class: "steps" }, answer.steps.map((/** @type {any} */ pair, /** @type {number} */ index) => {
    const diverges = answer.divergence?.index === index;
    return el("li", { class: `step ${pair.relation}${diverges ? " diverges" : ""}` },
      diverges ? el("p", { class: "divergence" }, answer.divergence.text) : null,
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
