// @ts-check
/**
 * Texts that people read: Markdown without HTML, pretty JSON, and the text as it is. Long ones fold.
 *
 * Markdown here has headings, lists, quotes, code, tables, emphasis and links. A link opens
 * only if it is http(s), and says where it goes; an image is shown as its address, and never loaded.
 */

import { el, fill } from "./dom.js";

const FOLD_CHARS = 2_000;
const FOLD_LINES = 30;

/**
 * A text with a choice between its rendered and its raw form.
 * @param {{text: string, more?: number, data?: boolean}} value
 * @param {{whole?: string, label?: string, code?: boolean}} [options] `whole`: address of the whole text
 */
export function textBlock(value, options = {}) {
  const text = value.text ?? "";
  const box = el("div", { class: "text-block" });
  const kinds = isJson(text) || value.data ? ["json", "raw"] : looksLikeMarkdown(text) ? ["markdown", "raw"] : ["raw"];
  const show = (/** @type {string} */ kind) => {
    const body = kind === "markdown" ? markdown(text) : el("pre", { class: `text ${kinds.length > 1 || options.code ? kind : "prose"}` }, kind === "json" ? pretty(text) : text);
    fill(box, kinds.length > 1 && switcher(kinds, kind, show, options.label), folded(body, text), tail(value, options));
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
 * @param {HTMLElement} body
 * @param {string} text
 */
function folded(body, text) {
  if (text.length <= FOLD_CHARS && text.split("\n", FOLD_LINES + 1).length <= FOLD_LINES) return body;
  body.classList.add("folded");
  const button = el("button", { type: "button", class: "unfold", "aria-expanded": "false" },
    `Show all ${text.length.toLocaleString("en")} characters`);
  button.addEventListener("click", () => {
    const open = body.classList.toggle("folded");
    button.setAttribute("aria-expanded", String(!open));
    button.textContent = open ? `Show all ${text.length.toLocaleString("en")} characters` : "Show less";
  });
  return el("div", {}, body, button);
}

/**
 * @param {{more?: number}} value
 * @param {{whole?: string}} options
 */
function tail(value, options) {
  if (!value.more) return null;
  const what = `${value.more.toLocaleString("en")} more characters`;
  return el("p", { class: "note" }, `${what} are not shown here. `,
    options.whole && el("a", { href: options.whole, target: "_blank", rel: "noopener" }, "Open the whole text"));
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
  return /^(#{1,6} |[-*] |\d+\. |> |```)/m.test(text) || /\*\*[^*\n]+\*\*|`[^`\n]+`|\[[^\]\n]+\]\(/.test(text);
}

/**
 * @param {string} text
 */
export function markdown(text) {
  const box = el("div", { class: "text markdown" });
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      const code = [];
      for (at += 1; at < lines.length && !lines[at].trim().startsWith(fence[1]); at += 1) code.push(lines[at]);
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
    if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) {
      const ordered = /^\s*\d/.test(line);
      const list = el(ordered ? "ol" : "ul");
      for (; at < lines.length && /^\s*([-*+]|\d+[.)])\s+/.test(lines[at]); at += 1) {
        list.append(el("li", {}, inline(lines[at].replace(/^\s*([-*+]|\d+[.)])\s+/, ""))));
      }
      box.append(list);
      continue;
    }
    if (line.includes("|") && /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "")) {
      const rows = [cells(line)];
      for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(cells(lines[at]));
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
    for (; at < lines.length && lines[at].trim() && !(lines[at].includes("|") && /^\s*\|?\s*:?-{2,}/.test(lines[at + 1] ?? "")) && !/^(#{1,6}\s|>\s?|\s*([-*+]|\d+[.)])\s|\s*(```|~~~))/.test(lines[at]); at += 1) {
      paragraph.push(lines[at]);
    }
    if (!paragraph.length) paragraph.push(lines[at++]);
    box.append(el("p", {}, inline(paragraph.join("\n"))));
  }
  return box;
}

/** @param {string} line of a table */
function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

const INLINE = /(`[^`]+`)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*)|(!?\[[^\]]*\]\([^()\s]*\))/g;

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
