// @ts-check
/** Small drawings: sparklines, intervals, histograms, and cost against quality. */

import { percent, percents, svg } from "./dom.js";

/**
 * The pass rates of earlier runs, the last one marked.
 * @param {(number | null)[]} values
 */
export function sparkline(values) {
  const known = values.filter((value) => value !== null);
  const width = 92, height = 24, pad = 4;
  const drawing = svg("svg", {
    class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": known.length ? `pass rates, oldest first: ${known.map(percent).join(", ")}` : "no earlier runs",
  });
  if (known.length < 2) return drawing;
  const x = (/** @type {number} */ i) => pad + (i * (width - 2 * pad)) / (values.length - 1);
  const low = Math.min(...known), high = Math.max(...known);
  const span = Math.max(0.2, high - low), least = Math.max(0, Math.min((low + high - span) / 2, 1 - span));
  const y = (/** @type {number} */ v) => height - pad - ((v - least) / span) * (height - 2 * pad);
  const points = values.flatMap((v, i) => (v === null ? [] : [`${x(i).toFixed(1)},${y(v).toFixed(1)}`]));
  drawing.append(svg("polyline", { points: points.join(" "), class: "line" }));
  const last = points[points.length - 1].split(",");
  drawing.append(svg("circle", { cx: last[0], cy: last[1], r: 2.5, class: "dot" }));
  return drawing;
}

/**
 * A rate with its interval on a line from 0 to 100 %.
 * @param {number} estimate
 * @param {number} low
 * @param {number} high
 */
export function intervalBar(estimate, low, high) {
  const width = 150, height = 14;
  const x = (/** @type {number} */ v) => Math.max(0, Math.min(1, v)) * (width - 10) + 5;
  return svg("svg", {
    class: "interval", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${percent(estimate)}, 95% interval ${percents(low, high)}`,
  },
    svg("line", { x1: 5, x2: width - 5, y1: 7, y2: 7, class: "axis" }),
    svg("line", { x1: x(low), x2: x(high), y1: 7, y2: 7, class: "range" }),
    svg("circle", { cx: x(estimate), cy: 7, r: 4.5, class: "dot" }),
  );
}

/**
 * @param {number[]} counts for equal parts of 0 to 1
 */
export function histogram(counts) {
  const width = 320, height = 96, most = Math.max(1, ...counts);
  const step = width / counts.length;
  const drawing = svg("svg", {
    class: "histogram", viewBox: `0 0 ${width} ${height + 14}`, role: "img",
    "aria-label": `scores from 0 to 1: ${counts.join(", ")} samples`,
  });
  counts.forEach((count, index) => {
    const tall = count ? Math.max(1.5, (count / most) * height) : 0;
    const bar = svg("rect", { x: index * step + 1, y: height - tall, width: step - 2, height: tall, rx: 1 });
    bar.append(svg("title", {}, `${(index / counts.length).toFixed(2)} to ${((index + 1) / counts.length).toFixed(2)}: ${count}`));
    drawing.append(bar);
  });
  drawing.append(svg("line", { x1: 0, x2: width, y1: height, y2: height, class: "base" }));
  for (const [at, anchor] of /** @type {[number, string][]} */ ([[0, "start"], [0.5, "middle"], [1, "end"]])) {
    drawing.append(svg("text", { x: at * width, y: height + 13, "text-anchor": anchor }, String(at)));
  }
  return drawing;
}

/**
 * Cost against quality, a point with its interval for each run.
 * @param {{label: string, cost: number, rate: number, low: number, high: number}[]} points
 */
export function scatter(points) {
  const width = 480, height = 250, left = 48, bottom = 44, top = 12, right = 24;
  const most = roundUp(Math.max(...points.map((p) => p.cost)) * 1.05 || 1);
  const least = Math.max(0, Math.floor(Math.min(...points.map((p) => p.low)) * 4) / 4);
  const x = (/** @type {number} */ v) => left + (v / most) * (width - left - right);
  const y = (/** @type {number} */ v) => top + ((1 - v) / (1 - least || 1)) * (height - top - bottom);
  const drawing = svg("svg", {
    class: "scatter", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": points.map((p) => `${p.label}: ${percent(p.rate)} for $${p.cost}`).join("; "),
  });
  for (let step = 0; step <= 4; step += 1) {
    const rate = least + ((1 - least) * step) / 4;
    drawing.append(
      svg("line", { x1: left, x2: width - right, y1: y(rate), y2: y(rate), class: "grid" }),
      svg("text", { x: left - 8, y: y(rate) + 4, "text-anchor": "end" }, `${Number((rate * 100).toFixed(1))}%`),
      svg("text", { x: x((most * step) / 4), y: height - bottom + 16, "text-anchor": "middle" }, `$${Number(((most * step) / 4).toPrecision(3))}`),
    );
  }
  drawing.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "cost of the run, against its pass rate with a 95% interval"));
  for (const p of points) {
    const dot = svg("circle", { cx: x(p.cost), cy: y(p.rate), r: 5, class: "dot" });
    dot.append(svg("title", {}, `${p.label}: ${percent(p.rate)}, $${p.cost}`));
    drawing.append(
      svg("line", { x1: x(p.cost), x2: x(p.cost), y1: y(p.low), y2: y(p.high), class: "range" }), dot,
      svg("text", { x: x(p.cost) + 9, y: y(p.rate) + 4, class: "name" }, p.label),
    );
  }
  return drawing;
}

/**
 * The next number of the kind 1, 2, 2.5 or 5 times a power of ten that is not smaller.
 * @param {number} value
 */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 2.5, 5, 10].find((each) => each * power >= value) ?? 10);
}
