// @ts-check
/** One sample: why it failed, its texts with what differs, the conversation, and all its epochs. */

import { ask } from "./api.js";
import { diffOf } from "./diff.js";
import { decimals, duration, el, fill, mark, money, number, plural } from "./dom.js";
import { labelList } from "./labels.js";
import { link, paramsOf } from "./links.js";
import { textBlock } from "./text.js";
import { timeSplit, waterfall } from "./timeline.js";
import { eventList, judges, sessionSlices, timeline } from "./transcript.js";

/** @param {import("./app.js").Screen} screen */
export async function sampleScreen({ path, query, signal, main, onKey }) {
  const [run, sample] = path;
  const key = { run, sample, epoch: query.get("epoch") ?? "", experiment: query.get("experiment") ?? "" };
  const item = await ask("sample", key, signal);
  key.epoch = String(item.epoch);
  key.experiment = item.experiment;
  document.title = `${sample} · WINK Evals`;
  const table = paramsOf(query);
  delete table.epoch;
  delete table.experiment;
  const back = link(["run", run], table);
  const neighbours = el("nav", { class: "neighbours", "aria-label": "Other samples" });
  const side = el("div", { class: "side" }, scores(item), metadata("Metadata", item.metadata), metadata("Metadata of the trajectory", item.trajectory_metadata));
  fill(main,
    el("nav", { class: "crumbs", "aria-label": "Where you are" }, el("a", { href: "#/" }, "Runs"), "/", el("a", { href: back, title: run }, run), "/", el("span", { title: sample }, sample)),
    el("div", { class: "sample-head" }, el("h1", {}, sample, " ", mark(item.verdict)), neighbours),
    el("p", { class: "facts" }, facts(item).map((each) => el("span", {}, each))),
    item.problem && el("p", { class: "problem" }, item.problem),
    item.verdict === "fail" && item.reason && el("p", { class: "why" }, item.reason),
    labelList(item, run),
    epochs(item, run, table),
    el("div", { class: "sample" },
      el("div", { class: "main" }, failure(item), texts(item, key), item.timing.spans.length ? waterfall(item.timing) : null, conversation(item, key, signal),
        judges(item.judges), sessionSlices(item.slices), item.events.length ? eventList(item.events) : null),
      side));
  onKey({}, {});
  const place = await ask("place", { run, ...table, at: sample, epoch: item.epoch, experiment: item.experiment }, signal).catch(() => null);
  if (!place || place.at === null) return;
  const to = (/** @type {any} */ other) => (other ? link(["sample", run, other.sample], { ...table, epoch: other.epoch, experiment: other.experiment }) : null);
  const [before, after] = [to(place.before), to(place.after)];
  fill(neighbours,
    el("a", { class: "button", href: before, "aria-disabled": String(!before), "aria-label": "Previous sample (k)" }, "← ", el("kbd", {}, "k")),
    el("span", { class: "count" }, `${number(place.at + 1)} of ${number(place.total)}`),
    el("a", { class: "button", href: after, "aria-disabled": String(!after), "aria-label": "Next sample (j)" }, el("kbd", {}, "j"), " →"));
  onKey({
    j: () => { if (after) location.hash = after; },
    k: () => { if (before) location.hash = before; },
    b: () => (location.hash = back),
  }, { j: "next sample", k: "previous sample", b: "back to the run" });
}

/** @param {any} item */
function facts(item) {
  const usage = item.usage;
  return [
    item.siblings.length > 1 ? `epoch ${item.epoch}` : "",
    item.attempt > 1 ? `attempt ${item.attempt}` : "",
    [duration(item.latency_ms), timeSplit(item.timing.split)].filter(Boolean).join(": "),
    usage ? `${number((usage.input_tokens ?? 0) + (usage.output_tokens ?? 0))} tokens (${number(usage.input_tokens)} in, ${number(usage.output_tokens)} out)` : "tokens unknown",
    item.cost === null ? "cost unknown" : money(item.cost),
    item.judge_tokens ? `judges ${number(item.judge_tokens)} tokens` : "",
    item.judge_cost === null ? "" : `judges ${money(item.judge_cost)}`,
    item.stop_reason ? `stop reason ${item.stop_reason}` : "",
    item.worker ? `worker ${item.worker}` : "",
    item.agent_version ? `agent ${item.agent_version.slice(0, 7)}` : "",
  ].filter(Boolean);
}

/**
 * @param {any} item
 * @param {string} run
 * @param {any} table
 */
function epochs(item, run, table) {
  if (item.siblings.length < 2) return null;
  return el("section", { class: "epochs", "aria-label": "Epochs" }, el("h2", {}, "Epochs"), el("ol", { class: "side-by-side" },
    item.siblings.map((/** @type {any} */ each) => {
      const here = each.epoch === item.epoch && each.experiment === item.experiment;
      return el("li", { class: here ? "here" : "" },
        el("a", { href: link(["sample", run, item.sample_id], { ...table, epoch: each.epoch, experiment: each.experiment }), "aria-current": here ? "true" : null }, `Epoch ${each.epoch}`),
        " ", mark(each.verdict), el("p", { class: "text clamp" }, each.output), el("p", { class: "note clamp" }, each.reason));
    })));
}

/** @param {any} item */
function scores(item) {
  if (!item.scores.length) return null;
  return el("section", { "aria-label": "Criteria" }, el("h2", {}, "Criteria"), el("ul", { class: "scores" },
    item.scores.map((/** @type {any} */ score) => el("li", { class: score.passed === false ? "failed" : "" },
      score.passed === null ? el("span", { class: "mark" }, "·") : mark(score.passed ? "pass" : "fail"),
      el("strong", {}, score.name), score.label ? el("span", {}, score.label) : null, el("span", { class: "number" }, number(Number(decimals(score.value, 3)))), score.reason ? el("span", { class: "reason text" }, score.reason) : null))));
}

/** @param {any} item */
function failure(item) {
  if (!item.error) return null;
  return el("section", { class: "failure", "aria-label": "Error" },
    el("h2", {}, `Error (${item.error_source ?? "agent"})`),
    el("p", { class: "problem" }, [item.error_type, item.error].filter(Boolean).join(": "), item.error_where ? ` at ${item.error_where}` : ""),
    item.traceback && el("details", { open: true }, el("summary", {}, "Traceback"), el("pre", { class: "text" }, item.traceback)));
}

/**
 * @param {any} item
 * @param {any} key
 */
function texts(item, key) {
  const part = (/** @type {string} */ title, /** @type {string} */ name) => item[name] && el("section", { class: "part", "aria-label": title },
    el("h2", {}, title), textBlock(item[name], { whole: { ...key, part: name }, label: name }));
  return el("div", { class: "texts" },
    part("Input", "input"),
    el("div", { class: "two" }, part("Expected", "expected"), part("Output", "output")),
    item.diff.length ? el("section", { class: "part", "aria-label": "Difference" }, el("h2", {}, "Expected → output"), diffOf(item.diff)) : null);
}

/**
 * @param {any} item
 * @param {any} key
 * @param {AbortSignal} signal
 */
function conversation(item, key, signal) {
  if (!item.message_count) return null;
  const box = el("section", { class: "conversation", "aria-label": "Conversation" });
  const messages = [...item.messages];
  const draw = () => {
    const left = item.message_count - messages.length;
    const more = el("button", { type: "button" }, `Show ${plural(Math.min(left, 200), "more message")} of ${number(left)}`);
    const problem = el("p", { class: "problem", role: "alert" });
    more.addEventListener("click", async () => {
      more.toggleAttribute("disabled", true); // a second click would load the same messages again
      try {
        const next = await ask("sample", { ...key, message: messages.length }, signal);
        messages.push(...next.messages);
        draw();
      } catch (error) {
        problem.textContent = /** @type {Error} */ (error).message;
        more.after(problem);
        more.toggleAttribute("disabled", false);
      }
    });
    fill(box, el("h2", {}, `Conversation, ${plural(item.message_count, "message")}`), timeline(messages, key, item.tool_errors, item.calls), left > 0 ? more : null);
  };
  draw();
  return box;
}

/**
 * @param {string} title
 * @param {{[name: string]: string}} values
 */
function metadata(title, values) {
  const entries = Object.entries(values);
  if (!entries.length) return null;
  return el("section", { "aria-label": title }, el("h2", {}, title), el("dl", { class: "metadata" },
    entries.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, textBlock({ text: value }, { label: name }))])));
}
