// @ts-check
/**
 * Texts that people read: Markdown without HTML, pretty JSON, and the text as it is. Long ones fold,
 * and of many lines the first are in the document, and more on request.
 *
 * Markdown here has headings, lists, quotes, code, tables, emphasis and links. A link opens
 * only if it is http(s), and says where it goes; an image is shown as its address, and never loaded.
 */

import { addressOf, ask, isShared, saveToo } from "./api.js";
import { append, el, fill } from "./dom.js";

const FOLD_CHARS = 2_000;
const FOLD_LINES = 30;
const FIRST_LINES = 200;
const MORE_LINES = 1_000;

/**
 * A text with a choice between its rendered and its raw form.
 * @param {{text: string, more?: number, data?: boolean}} value
 * @param {{whole?: import("./api.js").Params, label?: string, code?: boolean}} [options] `whole` names the whole text
 */
export function textBlock(value, options = {}) {
  const text = value.text ?? "";
  const box = el("div", { class: "text-block" });
  const kinds = isJson(text) || value.data ? ["json", "raw"] : looksLikeMarkdown(text) ? ["markdown", "raw"] : ["raw"];
  const show = (/** @type {string} */ kind) => {
    const body = kind === "markdown" ? el("div", { class: "text markdown" }) : el("pre", { class: `text ${kinds.length > 1 || options.code ? kind : "prose"}` });
    const lines = (kind === "json" ? pretty(text) : text).replace(/\n$/, "").split("\n");
    fill(box, kinds.length > 1 && switcher(kinds, kind, show, options.label), folded(body, text, lines), value.more && options.whole ? tail(value, options, box) : null);
  };
  show(kinds[0]);
  return box;
}

/**
 * @param {string[]} kinds
 * @param {string} current
 * @param {(kind: string) => void} choose
 * @param {string} [label]
 */
function switcher(kinds, current, choose, label = "text") {
  return el("div", { class: "switch", role: "group", "aria-label": `form of the ${label}` },
    kinds.map((kind) => el("button", {
      type: "button", "aria-pressed": String(kind === current), on: { click: () => choose(kind) },
    }, kind)));
}

/**
 * Show the first lines in the body, and buttons for the others.
 * @param {HTMLElement} body
 * @param {string} text
 * @param {string[]} lines
 */
function folded(body, text, lines) {
  const add = body.classList.contains("markdown") ? markdownAdder(body, lines) : textAdder(body, lines);
  let shown = add(FIRST_LINES);
  if (text.length <= FOLD_CHARS && lines.length <= FOLD_LINES) return body;
  const count = lines.length.toLocaleString("en");
  const note = el("span", { class: "note" });
  const more = el("button", { type: "button", class: "unfold" });
  const tell = () => {
    fill(note, `The first ${shown.toLocaleString("en")} of ${count} lines.`);
    fill(more, `Show ${Math.min(MORE_LINES, lines.length - shown).toLocaleString("en")} more`);
    note.hidden = more.hidden = shown >= lines.length || body.classList.contains("folded");
  };
  more.addEventListener("click", () => {
    shown = add(MORE_LINES);
    tell();
  });
  const fold = el("button", { type: "button", class: "unfold" });
  const turn = () => {
    const closed = body.classList.toggle("folded");
    fold.setAttribute("aria-expanded", String(!closed));
    fill(fold, !closed ? "Show less" : shown < lines.length ? `Show the first ${shown.toLocaleString("en")} of ${count} lines` : `Show all ${text.length.toLocaleString("en")} characters`);
    tell();
  };
  fold.addEventListener("click", turn);
  turn();
  return el("div", {}, body, el("div", {}, note, " ", more, " ", fold));
}

/**
 * Return a function that appends that many more lines, and returns how many there are.
 * @param {HTMLElement} body
 * @param {string[]} lines
 */
function textAdder(body, lines) {
  let at = 0;
  return (/** @type {number} */ count) => {
    append(body, [lines.slice(at, at + count).join("\n") + (at + count < lines.length ? "\n" : "")]);
    return (at = Math.min(at + count, lines.length));
  };
}

/**
 * The same for Markdown: a list, a table or code of many lines goes on in the next part.
 * @param {HTMLElement} body
 * @param {string[]} lines
 */
function markdownAdder(body, lines) {
  let at = 0;
  /** @type {string[]} */
  let opening = [];
  return (/** @type {number} */ count) => {
    if (opening.length > 1 && !lines[at]?.includes("|")) opening = []; // the table has ended
    opening = blocks(body, [...opening, ...lines.slice(at, at + count)]);
    return (at = Math.min(at + count, lines.length));
  };
}

/**
 * @param {{more?: number}} value
 * @param {{whole?: import("./api.js").Params}} options
 * @param {HTMLElement} box which a file without a server fills with the whole text
 */
function tail(value, options, box) {
  const whole = options.whole ?? {};
  saveToo("text", whole);
  const note = el("p", { class: "note" }, `${(value.more ?? 0).toLocaleString("en")} more characters are not shown here. `);
  const showAll = () => ask("text", whole).then((text) => box.replaceWith(textBlock({ ...value, text, more: 0 }, options)), (error) => fill(note, error.message));
  append(note, [isShared ? el("button", { type: "button", class: "unfold", on: { click: () => void showAll() } }, "Show the whole text")
    : el("a", { href: addressOf("text", whole), target: "_blank", rel: "noopener" }, "Open the whole text")]);
  return note;
}

/** @param {string} text */
function isJson(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** @param {string} text */
function looksLikeMarkdown(text) {
  return /^(#{1,6} |[-*] |\d+\. |> |```)/m.test(text) || /\*\*[^*\n]+\*\*|`[^`\n]+`|\[[^\]\n]{1,200}\]\(/.test(text);
}

/**
 * Append the blocks of these lines; return what opens the last one, if it may go on in further lines.
 * @param {Element} box
 * @param {string[]} lines
 * @returns {string[]}
 */
function blocks(box, lines) {
  /** @type {string[]} */
  let opening = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    opening = [];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      const code = [];
      for (at += 1; at < lines.length && !lines[at].trim().startsWith(fence[1]); at += 1) code.push(lines[at]);
      if (at === lines.length) opening = [line];
      at += 1;
      box.append(el("pre", { class: "code" }, code.join("\n")));
      continue;
    }
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (heading) {
      box.append(el("p", { class: `heading level-${heading[1].length}` }, inline(heading[2])));
      at += 1;
      continue;
    }
    if (ITEM.test(line)) {
      const number = /^\s*(\d+)/.exec(line);
      const list = el(number ? "ol" : "ul", { start: number && number[1] !== "1" ? number[1] : null });
      for (; at < lines.length && ITEM.test(lines[at]); at += 1) {
        list.append(el("li", {}, inline(lines[at].replace(ITEM, ""))));
      }
      box.append(list);
      continue;
    }
    if (line.includes("|") && isRule(lines[at + 1])) {
      const head = lines.slice(at, at + 2);
      const rows = [cells(line)];
      for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(cells(lines[at]));
      if (at === lines.length) opening = head;
      box.append(el("table", {}, rows.map((row, index) => el("tr", {}, row.map((cell) => el(index ? "td" : "th", {}, inline(cell)))))));
      continue;
    }
    if (/^>\s?/.test(line)) {
      const quote = [];
      for (; at < lines.length && /^>\s?/.test(lines[at]); at += 1) quote.push(lines[at].replace(/^>\s?/, ""));
      box.append(el("blockquote", {}, inline(quote.join("\n"))));
      continue;
    }
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const paragraph = [];
    for (; at < lines.length && lines[at].trim() && !(lines[at].includes("|") && isRule(lines[at + 1])) && !/^(#{1,6}\s|>\s?|\s*([-*+]|\d+[.)])\s|\s*(```|~~~))/.test(lines[at]); at += 1) {
      paragraph.push(lines[at]);
    }
    if (!paragraph.length) paragraph.push(lines[at++]);
    box.append(el("p", {}, inline(paragraph.join("\n"))));
  }
  return opening;
}

const ITEM = /^\s*([-*+]|\d+[.)])\s+/;

/** @param {string | undefined} line the second one of a table */
function isRule(line) {
  return line !== undefined && line.length < 1_000 && /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(line);
}

/** @param {string} line of a table */
function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

const INLINE = /(`[^`]+`)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*)|(!?\[[^\]]{0,1000}\]\([^()\s]{0,4000}\))/g;

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function inline(text) {
  /** @type {(Node | string)[]} */
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(text.slice(last, match.index), inlinePart(match[0]));
    last = match.index + match[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}

/** @param {string} part */
function inlinePart(part) {
  if (part.startsWith("`")) return el("code", {}, part.slice(1, -1));
  if (part.startsWith("**")) return el("strong", {}, part.slice(2, -2));
  if (part.startsWith("*")) return el("em", {}, part.slice(1, -1));
  const [, image, label, target] = /** @type {RegExpExecArray} */ (/^(!?)\[([^\]]*)\]\((.*)\)$/.exec(part));
  if (image || !/^https?:\/\//i.test(target)) return `${image ? "image: " : ""}${label} (${target})`;
  return el("a", { href: target, rel: "noopener noreferrer nofollow", target: "_blank", title: target }, label || target,
    el("span", { class: "target" }, ` (${target})`));
}
