// @ts-check
/** What changed between two texts, word by word. */

import { el } from "./dom.js";

/**
 * @param {[string, string][]} parts as `word_diff` returns them
 */
export function diffOf(parts) {
  const box = el("div", { class: "diff text" });
  for (const [kind, text] of parts) {
    box.append(el({ removed: "del", added: "ins" }[kind] ?? "span", {}, text));
  }
  return box;
}
