// @ts-check
/**
 * Elements, and values as text. Nothing in the page is ever made from markup: every text of a model,
 * a tool or a user becomes a text node.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {{[name: string]: any}} Props */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. Props: attributes by name, `class`, and `on`, an object of event listeners.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function el(tag, props = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), props, children));
}

/**
 * Make an element of a drawing.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, props = {}, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), props, children));
}

/**
 * @param {Element} element
 * @param {Props} props
 * @param {(Child | Child[])[]} children
 */
function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} parent
 * @param {(Child | Child[])[]} children
 */
export function append(parent, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false || child === "") continue;
    parent.append(child instanceof Node ? child : visible(String(child)));
  }
}

/**
 * Replace all children of an element.
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

// Characters that could change how the text around them reads: control characters and those that
// override the direction of writing.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * Write characters that cannot be seen as their code.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** @param {number | null | undefined} share */
export function percent(share) {
  return share === null || share === undefined || Number.isNaN(share) ? "–" : `${(share * 100).toFixed(1)}%`;
}

/**
 * The ends of an interval of rates, with as many digits as it takes to tell them apart.
 * @param {number} low
 * @param {number} high
 * @returns {string}
 */
export function percents(low, high, digits = 1) {
  const [from, to] = [low, high].map((end) => `${(end * 100).toFixed(digits)}%`);
  return from === to && low < high && digits < 6 ? percents(low, high, digits + 1) : `${from} to ${to}`;
}

/** @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
}

/**
 * A figure of a run, or that it is unknown.
 * @param {number | null} value
 * @param {(value: number) => string} text
 */
export function known(value, text) {
  return value === null ? "unknown" : text(value);
}

/**
 * A sum over the rows of a run, or its lower bound if it is unknown for some of them.
 * @param {number | null} value
 * @param {number} unknown
 * @param {(value: number) => string} text
 */
export function sum(value, unknown, text) {
  return `${value !== null && unknown ? "≥ " : ""}${known(value, text)}`;
}

/**
 * A large number in few characters: 980, 12.3k, 4.5M.
 * @param {number} value
 */
export function short(value) {
  if (value < 1_000) return String(value);
  return value < 1_000_000 ? `${Number((value / 1e3).toPrecision(3))}k` : `${Number((value / 1e6).toPrecision(3))}M`;
}

/**
 * A long id without its middle: ids often differ only at their end.
 * @param {string} id
 */
export function middle(id) {
  return id.length > 24 ? `${id.slice(0, 11)}…${id.slice(-12)}` : id;
}

/** @param {number | null | undefined} dollars */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return "–";
  return dollars && Math.abs(dollars) < 0.01 ? `$${dollars.toPrecision(2)}` : `$${dollars.toFixed(2)}`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000), minutes = Math.floor(seconds / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
}

/** @param {string | null} iso */
export function moment(iso) {
  if (!iso) return "–";
  const then = new Date(iso);
  const seconds = (Date.now() - then.getTime()) / 1000;
  if (seconds >= 0 && seconds < 60) return "just now";
  if (seconds >= 0 && seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds >= 0 && seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return then.toISOString().slice(0, 16).replace("T", " ");
}

/**
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * A verdict as a mark with a word, so that colour is never the only sign.
 * @param {string} verdict
 */
export function mark(verdict) {
  const sign = { pass: "✓", fail: "✗", error: "!" }[verdict] ?? "·";
  return el("span", { class: `mark ${verdict}` }, el("span", { "aria-hidden": "true" }, sign), ` ${verdict}`);
}
