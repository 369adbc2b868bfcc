// @ts-check
/** Notes sorted into failure categories, with counts, and a curve of how many are still to be found. */

import { ask, tell } from "./api.js";
import { el, fill, mark, moment, number, percent, percents, plural, svg } from "./dom.js";
import { link } from "./links.js";

const HELP = { j: "next note", k: "previous note", "1 … 9": "sort the note into that category", c: "new category", u: "undo" };

/**
 * @param {import("./app.js").Screen} screen
 * @param {import("./review.js").About} about
 * @param {HTMLElement} box
 */
export async function categoriesTab({ signal, onKey }, about, box) {
  let answer = await ask("review_categories", about, signal);
  let at = 0;
  const status = el("p", { class: "review-status", role: "status" });
  const fresh = /** @type {HTMLInputElement} */ (el("input", { type: "text", maxlength: 80, placeholder: "New category", "aria-label": "New category" }));

  const refresh = async () => {
    answer = await ask("review_categories", about, signal);
    at = Math.min(at, Math.max(answer.unsorted.length - 1, 0));
    draw();
  };
  const write = async (/** @type {string} */ name, /** @type {any} */ body) => {
    try {
      const response = await tell(name, { run: about.run, reviewer: about.reviewer, ...body });
      status.textContent = "";
      await refresh();
      return response;
    } catch (error) {
      if (!signal.aborted) fill(status, el("span", { class: "problem", role: "alert" }, /** @type {Error} */ (error).message));
      return null;
    }
  };
  const sort = (/** @type {any} */ note, /** @type {string} */ category) => write("review_label", {
    criterion: answer.criterion, sample: note.sample, epoch: note.epoch, experiment: note.experiment, labeller: note.labeller, category,
  });
  const sortAt = (/** @type {number} */ key) => {
    const category = answer.categories.find((/** @type {any} */ each) => each.key === key), note = answer.unsorted[at];
    if (category && note) void sort(note, category.id);
  };
  const create = async () => {
    const name = fresh.value.trim();
    if (!name) return;
    fresh.value = "";
    await write("review_category", { name });
  };
  fresh.addEventListener("keydown", (event) => { if (event.key === "Enter") void create(); });

  const note = (/** @type {any} */ each, /** @type {boolean} */ current, /** @type {string} */ category) => {
    const select = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": `Category of the note on ${each.sample}` },
      el("option", { value: "" }, category ? "take it out" : "sort into …"),
      answer.categories.map((/** @type {any} */ one) => el("option", { value: one.id, selected: one.id === category }, one.name))));
    select.addEventListener("change", () => void sort(each, select.value));
    return el("li", { class: `note-card${current ? " current" : ""}`, "aria-current": current ? "true" : null },
      el("p", { class: "text" }, each.note || "no note"),
      el("p", { class: "note-of" }, each.verdict ? mark(each.verdict) : null, " ", el("a", { href: link(["sample", about.run, each.sample], { epoch: each.epoch, experiment: each.experiment }) }, each.sample),
        ` · ${each.labeller} · ${moment(each.created_at)} `, select));
  };
  const category = (/** @type {any} */ each) => {
    const name = /** @type {HTMLInputElement} */ (el("input", { type: "text", value: each.name, maxlength: 80, "aria-label": `Name of ${each.name}` }));
    name.addEventListener("change", () => void write("review_category", { category: each.id, name: name.value }));
    const merge = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": `Merge ${each.name} into` }, el("option", { value: "" }, "merge into …"),
      answer.categories.filter((/** @type {any} */ one) => one.id !== each.id).map((/** @type {any} */ one) => el("option", { value: one.id }, one.name))));
    merge.addEventListener("change", () => void write("review_category", { category: each.id, into: merge.value }));
    return el("li", { class: "category" },
      el("div", { class: "category-head" }, each.key < 10 ? el("kbd", {}, String(each.key)) : null, name,
        el("strong", { class: "number" }, number(each.count)),
        el("meter", { min: 0, max: 1, value: each.rate, "aria-label": `share of ${each.name}` }),
        el("span", { class: "count" }, each.count ? `${percent(each.rate)} (${percents(each.low, each.high)})` : "no notes"), merge),
      each.notes.length ? el("details", {}, el("summary", {}, plural(each.notes.length, "note")), el("ul", { class: "notes" }, each.notes.map((/** @type {any} */ one) => note(one, false, each.id)))) : null);
  };

  function draw() {
    const open = answer.unsorted;
    fill(box, status, el("div", { class: "review-categories" },
      el("section", { "aria-label": "Notes to sort" },
        el("h2", {}, `Notes to sort, ${number(answer.unsorted_count)}`),
        open.length ? el("ul", { class: "notes" }, open.map((/** @type {any} */ each, /** @type {number} */ index) => note(each, index === at, "")))
          : el("p", { class: "empty" }, "There is no note without a category. Write notes in the queue: what went wrong first?")),
      el("section", { "aria-label": "Categories" },
        el("h2", {}, `Categories, ${number(answer.categories.length)}`),
        el("div", { class: "new-category" }, fresh, el("button", { type: "button", on: { click: () => void create() } }, "Add")),
        el("ul", { class: "categories" }, answer.categories.map(category)),
        answer.curve.length ? el("div", { class: "curve-box" }, el("h2", {}, "New categories per note"), curve(answer.curve),
          el("p", { class: "note" }, `${plural(answer.curve.length, "sorted note")}. The next one brings a new category with a probability of about ${percent(answer.new_category)}.`)) : null)));
  }

  /** @type {{[key: string]: () => void}} */
  const keys = {
    j: () => { at = Math.min(at + 1, Math.max(answer.unsorted.length - 1, 0)); draw(); scroll(); },
    k: () => { at = Math.max(at - 1, 0); draw(); scroll(); },
    c: () => fresh.focus(),
    u: () => void write("review_undo", { criterion: answer.criterion }),
  };
  const scroll = () => box.querySelector(".note-card.current")?.scrollIntoView({ block: "nearest" });
  for (let digit = 1; digit <= 9; digit += 1) keys[String(digit)] = () => sortAt(digit);
  onKey(keys, HELP);
  draw();
}

/**
 * How many categories there were after each note.
 * @param {number[]} counts
 */
function curve(counts) {
  const width = 420, height = 150, left = 30, bottom = 24, top = 8;
  const most = Math.max(...counts, 1), n = counts.length;
  const x = (/** @type {number} */ i) => left + (i / Math.max(n, 1)) * (width - left - 8);
  const y = (/** @type {number} */ v) => top + (1 - v / most) * (height - top - bottom);
  const points = [`${x(0)},${y(0)}`, ...counts.flatMap((count, i) => [`${x(i + 1)},${y(i ? counts[i - 1] : 0)}`, `${x(i + 1)},${y(count)}`])];
  const drawing = svg("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `categories after each note: ${counts.join(", ")}` });
  for (const value of [...new Set([0, Math.round(most / 2), most])]) {
    drawing.append(svg("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), class: "grid" }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  drawing.append(svg("polyline", { points: points.join(" "), class: "line" }),
    svg("text", { x: left, y: height - 6 }, "0"), svg("text", { x: width - 8, y: height - 6, "text-anchor": "end" }, plural(n, "note")));
  return drawing;
}
