// @ts-check
/** A conversation as a timeline: messages, tool calls with their arguments and results. */

import { addressOf } from "./api.js";
import { el, plural } from "./dom.js";
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
 */
export function timeline(messages, key, toolErrors) {
  /** @type {Map<string, Message>} */
  const results = new Map();
  for (const message of messages) {
    if (message.role === "tool" && message.tool_call_id) results.set(message.tool_call_id, message);
  }
  const called = new Set(messages.flatMap((message) => message.calls.map((call) => call.id)));
  const list = el("ol", { class: "timeline" });
  for (const message of messages) {
    if (message.role === "tool" && message.tool_call_id && called.has(message.tool_call_id)) continue;
    list.append(messageItem(message, results, key, toolErrors));
  }
  return list;
}

/**
 * @param {Message} message
 * @param {Map<string, Message>} results
 * @param {{[name: string]: any}} key
 * @param {{[id: string]: string}} toolErrors
 */
function messageItem(message, results, key, toolErrors) {
  const whole = (/** @type {Message} */ of) => addressOf("text", { ...key, part: `message:${of.number}` });
  return el("li", { class: `message ${message.role}`, id: `message-${message.number}` },
    el("div", { class: "who" }, el("span", { class: "role" }, message.role), message.name && ` ${message.name}`,
      el("span", { class: "number" }, ` #${message.number + 1}`)),
    message.text && textBlock(message, { whole: whole(message), label: "message" }),
    message.calls.map((call) => {
      const result = results.get(call.id);
      const failed = toolErrors[call.id];
      return el("details", { class: `call${failed ? " failed" : ""}`, open: true },
        el("summary", {}, el("span", { class: "tool-name" }, call.name), failed && el("span", { class: "mark error" }, " failed")),
        el("div", { class: "call-part" }, el("span", { class: "label" }, "arguments"), textBlock({ text: call.arguments, data: true }, { label: "arguments" })),
        el("div", { class: "call-part" }, el("span", { class: "label" }, "result"),
          result ? textBlock(result, { whole: whole(result), label: "result" }) : el("p", { class: "note" }, "no result")),
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
      el("span", { class: "time" }, event.time.slice(11, 23)), " ",
      el("span", { class: "kind" }, event.kind), " ", el("span", { class: "text" }, event.text)))));
}
