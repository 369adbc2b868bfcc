// @ts-check
/** Review: a queue of outputs that a person labels by keyboard, and the tabs next to it. */

import { ask, isShared, tell } from "./api.js";
import { el, fill, mark, number, plural } from "./dom.js";
import { link, paramsOf } from "./links.js";
import { categoriesTab } from "./review_categories.js";
import { reviewersTab } from "./review_people.js";
import { textBlock } from "./text.js";
import { eventList, timeline } from "./transcript.js";

const POLL_MS = 5_000;
const TABS = [["", "Queue"], ["categories", "Categories"], ["reviewers", "Reviewers"]];
const ORDERS = [["", "half random, half informative"], ["random", "random"], ["dataset", "dataset order"]];
const LENGTHS = ["30", "50", "100", "200"];
const HELP = {
  p: "pass", f: "fail", "1 … 9": "fail, in that category", n: "note: what went wrong first (Enter saves it)",
  s: "skip", u: "undo", j: "next output", k: "previous output", b: "hide or show the judge",
};

/**
 * @typedef {{verdict: string, note: string, category: string, skipped: boolean}} Label
 * @typedef {{sample: string, epoch: number, experiment: string, reasons: string[], label: Label | null}} Item
 * @typedef {{id: string, name: string}} Category
 * @typedef {{run: string, criterion: string, reviewer: string}} About
 */

/** The name of the reviewer, once it was entered. */
let current = "";

/** @param {import("./app.js").Screen} screen */
export async function reviewScreen(screen) {
  const { path, query, signal, main } = screen;
  const [run, tab = ""] = path;
  const reviewer = reviewerName();
  if (isShared) throw new Error("A review needs the server: open it with wink view.");
  const about = { run, criterion: query.get("criterion") ?? "", reviewer };
  document.title = "Review · WINK Evals";
  const body = el("div", {});
  const head = el("div", { class: "review-head" });
  fill(main,
    el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), " / ", el("a", { href: link(["run", run]) }, run), " / ", el("span", {}, "Review")),
    el("div", { class: "sample-head" }, el("h1", {}, "Review"), nameField(() => void reviewScreen(screen))),
    el("nav", { class: "tabs", "aria-label": "Parts of the review" }, TABS.map(([name, title]) => el("a", {
      href: link(name ? ["review", run, name] : ["review", run], { ...paramsOf(query), at: "" }), "aria-current": name === tab ? "page" : null,
    }, title))),
    head, body);
  if (!reviewer) {
    fill(body, el("p", { class: "empty" }, "Enter your name to start: it is stored with your labels, so that several people can review the same outputs."));
    main.querySelector("input")?.focus();
    return;
  }
  if (tab === "categories") return categoriesTab(screen, about, body);
  if (tab === "reviewers") return reviewersTab(screen, about, body);
  const asked = { ...about, n: Number(query.get("n") ?? 50), order: query.get("order") || "informative", blind: query.get("blind") === "1", sample: query.get("sample") ?? "", epoch: Number(query.get("epoch") ?? 1), experiment: query.get("experiment") || undefined };
  const queue = await (await tell("review_queue", asked)).json();
  if (signal.aborted) return;
  about.criterion = queue.criterion;
  fill(head, settings(queue, run, query), exports(run, about.criterion));
  new Queue(screen, about, queue, body).start();
}

/**
 * The name of the reviewer, which is stored with the labels.
 * @param {() => void} onChange
 */
function nameField(onChange) {
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "text", value: reviewerName(), maxlength: 60, placeholder: "Your name", autocomplete: "name" }));
  input.addEventListener("change", () => {
    current = input.value.trim();
    try {
      localStorage.setItem("wink-reviewer", current);
    } catch {
      // storage is turned off: the name must be entered again after a reload
    }
    onChange();
  });
  return el("label", { class: "reviewer" }, "Reviewer ", input);
}

function reviewerName() {
  try {
    return current || (localStorage.getItem("wink-reviewer") ?? "");
  } catch {
    return current;
  }
}

/**
 * @param {any} queue
 * @param {string} run
 * @param {URLSearchParams} query
 */
function settings(queue, run, query) {
  const go = (/** @type {{[name: string]: string}} */ changed) => (location.hash = link(["review", run], { ...paramsOf(query), at: "", ...changed }));
  const choice = (/** @type {string} */ title, /** @type {string} */ name, /** @type {string[][]} */ options, /** @type {string} */ current) => {
    const select = /** @type {HTMLSelectElement} */ (el("select", {}, options.map(([value, text]) => el("option", { value, selected: value === current }, text))));
    select.addEventListener("change", () => go({ [name]: select.value }));
    return el("label", {}, title, select);
  };
  const blind = query.get("blind") === "1";
  return el("div", { class: "settings" },
    queue.criteria.length > 1 && choice("Label by", "criterion", queue.criteria.map((/** @type {string} */ name) => [name, name]), queue.criterion),
    choice("Order", "order", ORDERS, query.get("order") ?? ""),
    choice("Outputs", "n", LENGTHS.map((n) => [n, n]), query.get("n") ?? "50"),
    el("button", { type: "button", "aria-pressed": String(blind), id: "blind", on: { click: () => go({ blind: blind ? "" : "1" }) } }, blind ? "Blind: judge hidden" : "Blind: off"));
}

/**
 * @param {string} run
 * @param {string} criterion
 */
function exports(run, criterion) {
  const address = (/** @type {string} */ form) => `/api/review_export?${new URLSearchParams({ run, criterion, form })}`;
  return el("p", { class: "exports note" }, "Export: ", [["csv", "CSV"], ["jsonl", "JSONL"], ["pairs", "preference pairs"]].flatMap(([form, title], at) => [
    at ? " · " : "", el("a", { href: address(form), download: "" }, title)]));
}

class Queue {
  /**
   * @param {import("./app.js").Screen} screen
   * @param {About} about
   * @param {any} answer
   * @param {HTMLElement} box
   */
  constructor({ query, signal, onKey, path }, about, answer, box) {
    this.about = about;
    this.signal = signal;
    this.onKey = onKey;
    this.query = query;
    this.run = path[0];
    this.blind = query.get("blind") === "1";
    /** @type {Item[]} */
    this.items = answer.items;
    /** @type {Category[]} */
    this.categories = answer.categories;
    this.reviewers = answer.reviewers;
    this.at = Math.min(Number(query.get("at") ?? (query.get("sample") ? 0 : this.next(0))), Math.max(this.items.length - 1, 0)) || 0;
    /** @type {Map<number, Promise<any>>} */
    this.loaded = new Map();
    /** Writes go one after the other, in the order of the keys. */
    this.writes = Promise.resolve();
    this.pending = 0;
    this.content = el("div", { class: "review-content" });
    this.panel = el("aside", { class: "review-panel", "aria-label": "Label" });
    this.status = el("p", { class: "review-status", role: "status" });
    this.progress = el("div", { class: "review-progress" });
    this.note = /** @type {HTMLTextAreaElement} */ (el("textarea", { id: "note", rows: 3, maxlength: 10000, placeholder: "What went wrong first?" }));
    fill(box, this.items.length ? el("div", { class: "review" }, this.content, this.panel) : el("p", { class: "empty" }, "This run has no output to review."));
  }

  start() {
    if (!this.items.length) return;
    this.note.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.note.blur();
      }
    });
    this.note.addEventListener("blur", () => this.saveNote());
    const timer = setInterval(() => void this.poll(), POLL_MS);
    this.signal.addEventListener("abort", () => { this.saveNote(); clearInterval(timer); });
    /** @type {{[key: string]: () => void}} */
    const keys = {
      p: () => this.label("pass"), f: () => this.label("fail"), s: () => this.skip(), u: () => void this.undo(),
      j: () => this.move(1), k: () => this.move(-1), n: () => this.note.focus(), b: () => document.getElementById("blind")?.click(),
    };
    for (let digit = 1; digit <= 9; digit += 1) keys[String(digit)] = () => this.categorize(digit - 1);
    this.onKey(keys, HELP);
    void this.show();
  }

  get item() {
    return this.items[this.at];
  }

  /**
   * The next output without a label, from a place on and then from the beginning; skipped ones last.
   * @param {number} from
   */
  next(from) {
    const places = this.items.map((_, step) => (from + step) % this.items.length);
    const open = places.filter((place) => !this.items[place].label?.verdict);
    return open.find((place) => !this.items[place].label?.skipped) ?? open[0] ?? Math.min(from, this.items.length - 1);
  }

  done() {
    return this.items.filter((item) => item.label?.verdict).length;
  }

  /** @param {number} by */
  move(by) {
    this.go(Math.min(Math.max(this.at + by, 0), this.items.length - 1));
  }

  /** @param {number} at */
  go(at) {
    this.saveNote();
    this.at = at;
    void this.show();
  }

  /**
   * @param {string} verdict
   * @param {string} [category]
   */
  label(verdict, category) {
    this.saveNote();
    const item = this.item;
    item.label = { verdict, note: item.label?.note ?? "", category: category ?? item.label?.category ?? "", skipped: false };
    this.write(item, { passed: verdict === "pass", category });
    this.status.textContent = `${item.sample}: ${verdict}`;
    this.go(this.next(this.at));
  }

  /** @param {number} index */
  categorize(index) {
    const category = this.categories[index];
    if (category) this.label("fail", category.id);
    else this.status.textContent = `There is no category ${index + 1} yet: write a name into New category.`;
  }

  skip() {
    if (!this.item.label) {
      this.item.label = { verdict: "", note: "", category: "", skipped: true };
      this.write(this.item, { skipped: true });
    }
    this.status.textContent = `${this.item.sample}: skipped`;
    this.move(1);
  }

  saveNote() {
    const item = this.item, note = this.note.value.trim();
    if (!item || this.note.dataset.of !== String(this.at) || note === (item.label?.note ?? "")) return;
    item.label = { verdict: item.label?.verdict ?? "", note, category: item.label?.category ?? "", skipped: false };
    this.write(item, { note });
    this.drawLabel();
  }

  /**
   * Store a change; if that fails, say so and show what is stored.
   * @param {Item} item
   * @param {any} change
   */
  write(item, change) {
    const { sample, epoch, experiment } = item;
    this.send("review_label", { ...this.about, sample, epoch, experiment, blind: this.blind, ...change });
  }

  /**
   * @param {string} name
   * @param {any} body
   * @returns {Promise<any>}
   */
  send(name, body) {
    this.pending += 1;
    const sent = this.writes.then(async () => (await tell(name, body)).json());
    this.writes = sent.then(() => {}, (error) => this.failed(error)).finally(() => {
      this.pending -= 1;
      this.drawProgress();
    });
    return sent.catch(() => null);
  }

  /** @param {Error} error */
  failed(error) {
    this.status.textContent = "";
    fill(this.status, el("span", { class: "problem", role: "alert" }, `Not stored: ${error.message} `,
      el("button", { type: "button", on: { click: () => location.reload() } }, "Reload")));
  }

  async undo() {
    this.saveNote();
    const answer = await this.send("review_undo", this.about);
    if (!answer) return;
    const undone = answer.undone;
    const at = undone ? this.items.findIndex((each) => each.sample === undone.sample && each.epoch === undone.epoch && each.experiment === undone.experiment) : -1;
    this.status.textContent = undone ? `${undone.sample}: undone` : "There is nothing to undo.";
    if (at < 0) return;
    this.items[at].label = answer.label;
    this.note.dataset.of = "";
    this.at = at;
    void this.show();
  }

  async poll() {
    if (document.hidden || this.pending) return;
    const answer = await ask("review_progress", this.about, this.signal).catch(() => null);
    if (!answer || this.pending) return;
    this.reviewers = answer.reviewers;
    const changed = JSON.stringify(answer.categories) !== JSON.stringify(this.categories);
    this.categories = answer.categories;
    this.drawProgress();
    if (changed && !this.panel.contains(document.activeElement)) this.drawLabel();
  }

  /** @param {number} at */
  load(at) {
    const { sample, epoch, experiment } = this.items[at];
    const known = this.loaded.get(at) ?? ask("review_item", { ...this.about, sample, epoch, experiment, blind: this.blind ? "1" : "" }, this.signal);
    this.loaded.set(at, known);
    return known;
  }

  async show() {
    const at = this.at;
    history.replaceState(null, "", link(["review", this.run], { ...paramsOf(this.query), at: String(at) }));
    this.drawLabel();
    try {
      const item = await this.load(at);
      if (this.at !== at) return;
      fill(this.content, ...this.texts(item));
      const ahead = this.next(Math.min(at + 1, this.items.length - 1));
      void this.load(ahead).catch(() => {});
    } catch (error) {
      if (!this.signal.aborted && this.at === at) fill(this.content, el("p", { class: "problem", role: "alert" }, /** @type {Error} */ (error).message));
    }
  }

  /** @param {any} item */
  texts(item) {
    const key = { run: this.run, sample: item.sample_id, epoch: item.epoch, experiment: item.experiment };
    const part = (/** @type {string} */ title, /** @type {any} */ value) => value && el("section", { class: "part", "aria-label": title }, el("h2", {}, title), textBlock(value, { label: title }));
    return [
      el("h2", { class: "review-title" }, item.sample_id, item.epoch > 1 ? ` · epoch ${item.epoch}` : ""),
      item.error && el("p", { class: "problem" }, item.error),
      part("Input", item.input),
      el("div", { class: "two" }, part("Expected", item.expected), part("Output", item.output)),
      item.judge && el("section", { class: "review-judge", "aria-label": "Judge" }, el("h2", {}, "Judge"), el("p", {}, mark(item.judge.verdict), " ", el("span", { class: "text" }, item.judge.reason))),
      item.message_count ? el("details", { class: "conversation", open: !item.output }, el("summary", {}, `Conversation, ${plural(item.message_count, "message")}`),
        timeline(item.messages, key, item.tool_errors ?? {}, item.calls ?? {}),
        item.message_count > item.messages.length ? el("p", { class: "note" }, el("a", { href: link(["sample", this.run, item.sample_id], { epoch: item.epoch, experiment: item.experiment }) }, "All messages are on the sample's own page.")) : null) : null,
      item.events?.length ? eventList(item.events) : null,
    ];
  }

  drawProgress() {
    const done = this.done(), others = Object.entries(this.reviewers).filter(([name]) => name !== this.about.reviewer);
    fill(this.progress,
      el("div", { class: "bar" },
        el("strong", {}, `${number(this.at + 1)} of ${number(this.items.length)}`),
        el("span", { class: "count" }, `${number(done)} labelled${this.pending ? ", saving …" : ""}`)),
      el("progress", { max: this.items.length, value: done, "aria-label": "labelled" }),
      others.length ? el("p", { class: "note" }, others.map(([name, count]) => `${name}: ${count}`).join(" · ")) : null,
      done === this.items.length ? el("p", { class: "finished" }, "Every output has a label. Now correct the judge's pass rate:",
        el("code", {}, `wink judge calibrate --run ${this.run}`)) : null);
  }

  drawLabel() {
    const item = this.item, label = item.label;
    const button = (/** @type {string} */ verdict, /** @type {string} */ key) => el("button", {
      type: "button", class: `verdict-button ${verdict}`, "aria-pressed": String(label?.verdict === verdict), on: { click: () => this.label(verdict) },
    }, mark(verdict), " ", el("kbd", {}, key));
    const fresh = /** @type {HTMLInputElement} */ (el("input", { type: "text", maxlength: 80, placeholder: "New category", "aria-label": "New category" }));
    fresh.addEventListener("keydown", (event) => { if (event.key === "Enter") void this.create(fresh.value); });
    if (this.note.dataset.of !== String(this.at) || document.activeElement !== this.note) this.note.value = label?.note ?? "";
    this.note.dataset.of = String(this.at);
    this.drawProgress();
    fill(this.panel,
      this.progress,
      el("div", { class: "review-verdicts", role: "group", "aria-label": "Verdict" }, button("pass", "p"), button("fail", "f")),
      el("label", { class: "note-label", for: "note" }, "Note ", el("kbd", {}, "n")), this.note,
      el("fieldset", { class: "category-keys" }, el("legend", {}, "Failure category"),
        this.categories.map((category, at) => el("button", {
          type: "button", class: "facet", "aria-pressed": String(label?.category === category.id), on: { click: () => this.label("fail", category.id) },
        }, el("span", {}, category.name), at < 9 ? el("kbd", {}, String(at + 1)) : null)),
        this.categories.length ? null : el("p", { class: "note" }, "Notes first; categories come from them.")),
      el("div", { class: "new-category" }, fresh, el("button", { type: "button", on: { click: () => void this.create(fresh.value) } }, "Add")),
      el("div", { class: "moves" },
        el("button", { type: "button", on: { click: () => this.move(-1) } }, "Previous ", el("kbd", {}, "k")),
        el("button", { type: "button", on: { click: () => this.move(1) } }, "Next ", el("kbd", {}, "j")),
        el("button", { type: "button", on: { click: () => this.skip() } }, "Skip ", el("kbd", {}, "s")),
        el("button", { type: "button", on: { click: () => void this.undo() } }, "Undo ", el("kbd", {}, "u"))),
      this.status,
      item.reasons.length ? el("p", { class: "note" }, `In the queue: ${item.reasons.join(", ")}`) : null);
  }

  /** @param {string} name */
  async create(name) {
    if (!name.trim()) return;
    const answer = await this.send("review_category", { run: this.run, reviewer: this.about.reviewer, name });
    if (!answer) return;
    this.categories = answer.categories;
    this.label("fail", answer.id);
  }
}
