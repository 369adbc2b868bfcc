// @ts-check
/** Calls of models and tools on an axis of time: which took how long, what it used, and what failed. */

import { duration, el, money, number, plural, svg } from "./dom.js";

const MAX_ROWS = 40;

/**
 * @param {{spans: any[], total: number, left_out: number, split: {[part: string]: number}}} timing
 */
export function waterfall(timing) {
  const spans = timing.spans.slice(0, MAX_ROWS);
  const width = 860, left = 190, right = 170, row = 22, bottom = spans.length * row + 4;
  const scale = (width - left - right) / (timing.total || 1);
  const drawing = svg("svg", { class: "waterfall", viewBox: `0 0 ${width} ${bottom + 18}`, role: "img", "aria-label": spans.map(say).join("; ") });
  for (const at of ticks(timing.total)) {
    const x = left + at * scale;
    drawing.append(svg("line", { x1: x, x2: x, y1: 0, y2: bottom, class: "tick" }), svg("text", { x, y: bottom + 13, "text-anchor": "middle" }, duration(at)));
  }
  spans.forEach((span, index) => {
    const y = index * row + 2;
    const wide = Math.max(3, span.ms * scale);
    const start = Math.min(span.start * scale, width - left - right - wide);
    drawing.append(
      svg("text", { x: 0, y: y + 14, class: "label" }, cut(span.name)),
      svg("rect", { x: left, y: y + 3, width: width - left - right, height: row - 8, rx: 3, class: "track" }),
      svg("rect", { x: left + start, y: y + 3, width: wide, height: row - 8, rx: 3, class: span.failed ? "failed" : span.kind }, svg("title", {}, say(span))),
      svg("text", { x: width, y: y + 14, "text-anchor": "end" }, [duration(span.ms), tokens(span)].filter(Boolean).join(" · ")),
    );
  });
  const words = [["model", "model call"], ["tool", "tool call"]].map(([kind, noun]) => {
    const count = timing.spans.filter((span) => span.kind === kind).length;
    return count ? plural(count, noun) : "";
  });
  const failed = timing.spans.filter((span) => span.failed).length;
  return el("section", { "aria-label": "Timeline" }, el("h2", {}, "Timeline"),
    el("div", { class: "panel" }, el("p", { class: "note" }, [...words, failed ? `${failed} failed` : ""].filter(Boolean).join(" · ")), drawing,
      timing.spans.length > MAX_ROWS ? el("p", { class: "note" }, `${number(timing.spans.length + timing.left_out - MAX_ROWS)} more calls are not drawn.`) : null));
}

/**
 * Where the time of an attempt went: model 0.6 s · tools 1.8 s · other 2.2 s.
 * @param {{[part: string]: number}} split
 */
export function timeSplit(split) {
  return Object.entries(split).map(([part, ms]) => `${part} ${duration(ms)}`).join(" · ");
}

/**
 * Four to nine round moments, from 0.
 * @param {number} total
 */
function ticks(total) {
  const power = 10 ** Math.floor(Math.log10(total || 1));
  const step = Math.max(1, power * (total / power < 2 ? 0.25 : total / power < 5 ? 0.5 : 1)); // labels are whole milliseconds
  return Array.from({ length: Math.floor((total || 1) / step) + 1 }, (_, index) => index * step);
}

/** @param {any} span */
function tokens(span) {
  const { input_tokens: input, output_tokens: output, cached_tokens: cached } = span.usage ?? {};
  return span.usage ? `${number(input)} in${cached ? ` (${number(cached)} cached)` : ""}, ${number(output)} out` : "";
}

/** @param {any} span */
function say(span) {
  return [`${span.name} ${duration(span.ms)}`, span.usage ? `${tokens(span)} tokens` : "", span.cost ? money(span.cost) : "", span.stop_reason ? `stop reason ${span.stop_reason}` : "", span.failed ? `failed: ${span.error}` : ""].filter(Boolean).join(", ");
}

/** @param {string} name */
function cut(name) {
  return name.length > 25 ? `${name.slice(0, 24)}…` : name;
}
