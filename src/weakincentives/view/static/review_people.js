// @ts-check
/** Several reviewers: how far they agree, and the outputs on which they do not, to be settled. */

import { ask, tell } from "./api.js";
import { el, fill, mark, number, percent, plural } from "./dom.js";
import { link } from "./links.js";
import { intervalBar } from "./plot.js";

const HELP = { j: "next disagreement", k: "previous disagreement", p: "settle: pass", f: "settle: fail", u: "undo" };

/**
 * @param {import("./app.js").Screen} screen
 * @param {import("./review.js").About} about
 * @param {HTMLElement} box
 */
export async function reviewersTab({ signal, onKey }, about, box) {
  let answer = await ask("review_agreement", about, signal);
  let at = 0;
  const status = el("p", { class: "review-status", role: "status" });
  const write = async (/** @type {string} */ name, /** @type {any} */ body) => {
    try {
      await tell(name, { run: about.run, reviewer: about.reviewer, criterion: answer.criterion, ...body });
      status.textContent = "";
      answer = await ask("review_agreement", about, signal);
      draw();
    } catch (error) {
      if (!signal.aborted) fill(status, el("span", { class: "problem", role: "alert" }, /** @type {Error} */ (error).message));
    }
  };
  const settle = (/** @type {any} */ each, /** @type {boolean} */ passed) => write("review_label", {
    sample: each.sample, epoch: each.epoch, experiment: each.experiment, passed, settles: true,
  });
  const settleAt = (/** @type {boolean} */ passed) => {
    const each = answer.disagreements[at];
    if (!each) return;
    at = Math.min(at + 1, answer.disagreements.length - 1);
    void settle(each, passed);
  };
  const row = (/** @type {any} */ each, /** @type {number} */ index) => el("li", { class: `disagreement${index === at ? " current" : ""}`, "aria-current": index === at ? "true" : null },
    el("div", { class: "flip-head" },
      el("a", { href: link(["sample", about.run, each.sample], { epoch: each.epoch, experiment: each.experiment }) }, each.sample),
      each.decision ? el("span", {}, "settled by ", each.decision.labeller, ": ", mark(each.decision.verdict)) : el("span", { class: "chip stopped" }, "to settle"),
      el("span", { class: "settle" },
        el("button", { type: "button", "aria-label": `Settle ${each.sample}: pass`, on: { click: () => void settle(each, true) } }, "Pass"),
        el("button", { type: "button", "aria-label": `Settle ${each.sample}: fail`, on: { click: () => void settle(each, false) } }, "Fail"))),
    el("ul", { class: "says" }, each.labels.map((/** @type {any} */ label) => el("li", {}, el("strong", {}, label.labeller), " ", mark(label.verdict), " ", el("span", { class: "text" }, label.note)))));

  function draw() {
    const people = Object.entries(answer.labels);
    const open = answer.disagreements.filter((/** @type {any} */ each) => !each.decision).length;
    fill(box, status, el("div", { class: "panels" },
      el("section", { class: "panel people", "aria-label": "Reviewers" }, el("h2", {}, "Reviewers"),
        people.length ? el("table", { class: "bars" }, el("tbody", {}, people.map(([name, count]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, plural(/** @type {number} */ (count), "label"))))))
          : el("p", { class: "empty" }, "There are no labels yet.")),
      el("section", { class: "panel people", "aria-label": "Agreement" }, el("h2", {}, "Agreement"),
        answer.agreement ? [
          el("div", { class: "big" }, el("strong", {}, percent(answer.agreement.rate)), intervalBar(answer.agreement.rate, answer.agreement.low, answer.agreement.high)),
          el("p", { class: "note" }, `of ${plural(answer.shared, "output")} with two labels or more`),
          answer.alpha ? el("p", {}, "Krippendorff's alpha ", el("strong", {}, answer.alpha.rate.toFixed(2)), ` (95% interval ${answer.alpha.low.toFixed(2)} to ${answer.alpha.high.toFixed(2)})`)
            : el("p", { class: "note" }, "Alpha is not defined: everyone gives every output the same label."),
          answer.pairs.length > 1 ? el("ul", {}, answer.pairs.map((/** @type {any} */ pair) => el("li", {}, `${pair.people.join(" and ")}: ${pair.agreed} of ${pair.n}`))) : null,
        ] : el("p", { class: "empty" }, "It takes two people who label the same outputs."))),
      el("h2", {}, `Disagreements, ${number(open)} to settle`),
      answer.disagreements.length ? el("ol", { class: "flips disagreements" }, answer.disagreements.map(row)) : el("p", { class: "empty" }, "There are none."));
  }

  const move = (/** @type {number} */ by) => {
    at = Math.min(Math.max(at + by, 0), Math.max(answer.disagreements.length - 1, 0));
    draw();
    box.querySelector(".disagreement.current")?.scrollIntoView({ block: "nearest" });
  };
  onKey({ j: () => move(1), k: () => move(-1), p: () => settleAt(true), f: () => settleAt(false), u: () => void write("review_undo", {}) }, HELP);
  draw();
}
