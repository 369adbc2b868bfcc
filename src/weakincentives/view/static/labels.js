// @ts-check
/** The labels of people where runs and samples are shown: a column, a filter, a list, a link to review. */

import { isShared } from "./api.js";
import { el, mark, moment } from "./dom.js";
import { link } from "./links.js";

/**
 * @param {string} run
 * @param {any} [sample] which comes first
 */
export function reviewLink(run, sample = {}) {
  return isShared ? null : el("p", {}, el("a", { class: "button", href: link(["review", run], sample) }, "Review"));
}

export const labelColumn = {
  key: "label", title: "Label", width: 9,
  cell: (/** @type {any} */ { label }) => {
    const [verdict, ...categories] = label.split(" · ");
    return el("span", { title: label }, ["pass", "fail"].includes(verdict) ? mark(verdict) : verdict, categories.map((/** @type {string} */ name) => ` · ${name}`).join(""));
  },
};

/**
 * How many rows have each label, and how many have none.
 * @param {any} facets
 */
export function labelCounts({ labels = {}, of }) {
  const verdicts = Object.keys(labels).filter((name) => !name.startsWith("category: "));
  return verdicts.length ? { ...labels, none: of - verdicts.reduce((sum, name) => sum + labels[name], 0) } : {};
}

/**
 * What people say about a sample.
 * @param {any} item
 * @param {string} run
 */
export function labelList({ labels, labels_problem: problem, sample_id: sample, epoch, experiment }, run) {
  const review = reviewLink(run, { sample, epoch, experiment });
  if (problem) return el("p", { class: "problem" }, problem);
  if (!labels?.length) return review;
  const chip = (/** @type {string} */ text) => text && el("span", { class: "chip" }, text);
  return el("section", { "aria-label": "Labels of people" }, el("h2", {}, "Labels of people"), review, el("ul", { class: "sample-labels" },
    labels.map((/** @type {any} */ each) => el("li", {}, each.verdict && mark(each.verdict), " ", el("strong", {}, each.labeller), " ", chip(each.settled && "settled"), chip(each.category), " ",
      el("span", { class: "text" }, each.note), el("span", { class: "note" }, ` ${each.criterion} ${each.blind ? "blind " : ""}${moment(each.created_at)}`)))));
}
