// @ts-check
/** Tags of a run: shown everywhere, changed on its own page. */

import { isShared, tell } from "./api.js";
import { el, fill } from "./dom.js";

/**
 * @param {string} name
 * @param {string} value
 * @param {(() => void) | null} [remove]
 */
export function tagChip(name, value, remove = null) {
  return el("span", { class: "tag", title: `${name}=${value}` }, el("span", {}, `${name}=${value}`),
    remove && el("button", { type: "button", "aria-label": `Remove the tag ${name}`, on: { click: remove } }, "×"));
}

/**
 * The tags of a run, with a field for a new one.
 * @param {string} run
 * @param {{[name: string]: string}} tags
 */
export function tagEditor(run, tags) {
  const box = el("div", { class: "run-tags", role: "group", "aria-label": "Tags" });
  const problem = el("span", { class: "mark fail", role: "alert" });
  let editing = false;
  const change = async (/** @type {any} */ body) => {
    problem.textContent = "";
    try {
      tags = (await (await tell("tags", { run, ...body })).json()).tags;
      draw();
    } catch (error) {
      problem.textContent = /** @type {Error} */ (error).message;
    }
  };
  const field = () => {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "text", placeholder: "key=value", "aria-label": "New tag, key=value", maxlength: 360 }));
    const form = el("form", {}, input, el("button", {}, "Add"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const [, key, value] = /^\s*([^=]+?)\s*=\s*(.+?)\s*$/.exec(input.value) ?? [];
      if (!key) problem.textContent = "expected key=value";
      else void change({ tags: { [key]: value } });
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      editing = false;
      draw();
    });
    return form;
  };
  const draw = () => {
    const entries = Object.entries(tags);
    fill(box, entries.map(([name, value]) => tagChip(name, value, isShared ? null : () => void change({ remove: [name] }))),
      isShared ? null : editing ? field() : el("button", { type: "button", class: "quiet", on: { click: () => { editing = true; draw(); } } }, "+ tag"), problem);
    if (editing) box.querySelector("input")?.focus();
  };
  draw();
  return box;
}
