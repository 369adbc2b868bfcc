// @ts-check
/** A conversation as a timeline: messages, tool calls with their arguments and results. */

import { duration, el, money, number, plural } from "./dom.js";
import { textBlock } from "./text.js";

/**
 * @typedef {{number: number, role: string, name: string | null, tool_call_id: string | null, text: string,
 *   more: number, calls: {id: string, name: string, arguments: string}[]}} Message
 */

/**
 * Messages as list items; the result of a call is shown with it.
 * @param {Message[]} messages
 * @param {{[name: string]: any}} key the parameters that name the sample
 * @param {{[id: string]: string}} toolErrors
 * @param {{[id: string]: {ms: number | null, tries: number}}} calls how long tool calls took
 */
export function timeline(messages, key, toolErrors, calls) {
  /** @type {Map<string, Message>} */
  const results = new Map();
  for (const message of messages) {
    if (message.role === "tool" && message.tool_call_id) results.set(message.tool_call_id, message);
  }
  const called = new Set(messages.flatMap((message) => message.calls.map((call) => call.id)));
  const list = el("ol", { class: "timeline" });
  for (const message of messages) {
    if (message.role === "tool" && message.tool_call_id && called.has(message.tool_call_id)) continue;
    list.append(messageItem(message, results, key, toolErrors, calls));
  }
  return list;
}

/**
 * @param {Message} message
 * @param {Map<string, Message>} results
 * @param {{[name: string]: any}} key
 * @param {{[id: string]: string}} toolErrors
 * @param {{[id: string]: {ms: number | null, tries: number}}} calls
 */
function messageItem(message, results, key, toolErrors, calls) {
  const whole = (/** @type {Message} */ of) => ({ ...key, part: `message:${of.number}` });
  return el("li", { class: `message ${message.role}`, id: `message-${message.number}` },
    el("div", { class: "who" }, el("span", { class: "role" }, message.role), message.name && ` ${message.name}`,
      el("span", { class: "number" }, `#${message.number + 1}`)),
    message.text && textBlock(message, { whole: whole(message), label: "message" }),
    message.calls.map((call) => {
      const result = results.get(call.id);
      const failed = toolErrors[call.id], took = calls[call.id];
      return el("details", { class: `call${failed ? " failed" : ""}`, open: true },
        el("summary", {}, el("span", { class: "tool-name" }, call.name), failed && el("span", { class: "mark fail" }, "✗ failed"),
          took && el("span", { class: "took" }, [took.ms === null ? "" : duration(took.ms), took.tries > 1 ? `${took.tries} tries` : ""].filter(Boolean).join(" · "))),
        el("div", { class: "call-part" }, el("span", { class: "label" }, "arguments"), textBlock({ text: call.arguments, data: true }, { label: "arguments" })),
        el("div", { class: "call-part" }, el("span", { class: "label" }, "result"),
          result ? textBlock(result, { whole: whole(result), label: "result", code: true }) : el("p", { class: "note" }, "no result")),
        failed && el("p", { class: "problem" }, failed));
    }),
    !message.text && !message.calls.length && el("p", { class: "note" }, "empty message"));
}

/**
 * Events of a session: time, kind, text.
 * @param {{time: string, kind: string, text: string}[]} events
 */
export function eventList(events) {
  return el("details", { class: "events" },
    el("summary", {}, plural(events.length, "session event")),
    el("ol", {}, events.map((event) => el("li", {},
      el("span", { class: "time" }, event.time), " ",
      el("span", { class: "kind" }, event.kind), " ", el("span", { class: "text" }, event.text)))));
}

/**
 * What the judges were asked, and what they answered.
 * @param {any[]} calls
 */
export function judges(calls) {
  if (!calls.length) return null;
  return el("section", { "aria-label": "Judges" }, el("h2", {}, plural(calls.length, "judge call")),
    calls.map((call) => el("details", { class: "judge" },
      el("summary", {}, el("strong", {}, call.judge), call.problem ? el("span", { class: "mark fail" }, "✗ not usable") : null,
        el("span", {}, [call.model ?? "", call.ms === null ? "" : duration(call.ms), call.tokens ? `${number(call.tokens)} tokens` : "", call.cost ? money(call.cost) : ""].filter(Boolean).join(" · "))),
      call.problem && el("p", { class: "problem" }, call.problem),
      call.messages.map((/** @type {any} */ message) => [el("h3", {}, message.role), textBlock({ text: message.text }, { label: `${message.role} prompt` })]).flat(),
      el("h3", {}, "answer"), call.answer ? textBlock({ text: call.answer }, { label: "answer" }) : el("p", { class: "note" }, "no text"))));
}

/**
 * The state that an agent and its tools keep in the session.
 * @param {{type: string, count: number, items: string[]}[]} slices
 */
export function sessionSlices(slices) {
  if (!slices.length) return null;
  return el("section", { "aria-label": "Session" }, el("h2", {}, "Session"),
    slices.map((slice) => el("details", { class: "slice" }, el("summary", {}, el("strong", {}, slice.type), ` ${plural(slice.count, "item")}`),
      slice.items.map((item) => textBlock({ text: item, data: true }, { label: slice.type })),
      slice.count > slice.items.length ? el("p", { class: "note" }, `The first ${slice.items.length} are shown.`) : null)));
}
