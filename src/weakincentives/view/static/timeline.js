// @ts-check
/**
 * Prompts and tool calls of an attempt on an axis of time: which took how long, and what failed. A prompt is
 * one bar, as long as its model took in all; its tools have their own.
 */

import { duration, el, money, number, plural, svg } from "./dom.js";

const MAX_ROWS = 40;

/**
 * @param {{spans: any[], total: number, left_out: number}} timing
 */
export function waterfall(timing) {
  const spans = timing.spans.slice(0, MAX_ROWS);
  const width = 860, left = 190, right = 120, row = 22;
  const scale = (width - left - right) / (timing.total || 1);
  const drawing = svg("svg", { class: "waterfall", viewBox: `0 0 ${width} ${spans.length * row + 4}`, role: "img", "aria-label": spans.map(say).join("; ") });
  spans.forEach((span, index) => {
    const y = index * row + 2;
    const wide = Math.max(3, span.ms * scale);
    const start = Math.min(span.start * scale, width - left - right - wide);
    drawing.append(
      svg("text", { x: 0, y: y + 14, class: "label" }, cut(span.name)),
      svg("rect", { x: left, y: y + 3, width: width - left - right, height: row - 8, rx: 3, class: "track" }),
      svg("rect", { x: left + start, y: y + 3, width: wide, height: row - 8, rx: 3, class: span.failed ? "failed" : span.kind }, svg("title", {}, say(span))),
      svg("text", { x: width, y: y + 14, "text-anchor": "end" }, [duration(span.ms), span.tokens ? `${number(span.tokens)} tok` : ""].filter(Boolean).join(" · ")),
    );
  });
  const words = [["model", "prompt"], ["tool", "tool call"]].map(([kind, noun]) => {
    const of = timing.spans.filter((span) => span.kind === kind);
    return of.length ? `${plural(of.length, noun)}, ${duration(of.reduce((sum, span) => sum + span.ms, 0))}${kind === "model" ? " in the model" : ""}` : "";
  });
  const failed = timing.spans.filter((span) => span.failed).length;
  return el("section", { "aria-label": "Timeline" }, el("h2", {}, "Timeline"),
    el("div", { class: "panel" }, el("p", { class: "note" }, [...words, failed ? `${failed} failed` : ""].filter(Boolean).join(" · ")), drawing,
      timing.spans.length > MAX_ROWS ? el("p", { class: "note" }, `${number(timing.spans.length + timing.left_out - MAX_ROWS)} more calls are not drawn.`) : null));
}

/** @param {any} span */
function say(span) {
  return [`${span.name} ${duration(span.ms)}`, span.tokens ? `${number(span.tokens)} tokens` : "", span.cost ? money(span.cost) : "", span.failed ? `failed: ${span.error}` : ""].filter(Boolean).join(", ");
}

/** @param {string} name */
function cut(name) {
  return name.length > 25 ? `${name.slice(0, 24)}…` : name;
}
