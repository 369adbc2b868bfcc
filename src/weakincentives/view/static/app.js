// @ts-check
/** The page: a header, and the screen that the address names. */

import { isAccepted, isShared, newScreen, save } from "./api.js";
import { el, fill } from "./dom.js";
import { parse } from "./links.js";
import { savedView } from "./offline.js";
import { compareScreen } from "./compare.js";
import { reviewScreen } from "./review.js";
import { runScreen } from "./run.js";
import { runsScreen } from "./runs.js";
import { sampleScreen } from "./sample.js";

/**
 * @typedef {{path: string[], query: URLSearchParams, signal: AbortSignal, main: HTMLElement,
 *   onKey: (keys: {[key: string]: () => void}, help: {[key: string]: string}) => void}} Screen
 */

const screens = /** @type {{[name: string]: (screen: Screen) => Promise<void>}} */ ({
  "": runsScreen,
  run: runScreen,
  sample: sampleScreen,
  compare: compareScreen,
  review: reviewScreen,
});

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const main = el("main", { id: "main", tabindex: "-1" });
const help = /** @type {HTMLDialogElement} */ (el("dialog", { class: "help", "aria-label": "Keys" }));
let leaving = new AbortController();
/** @type {{[key: string]: () => void}} */
let keys = {};
/** @type {{[key: string]: string}} */
let keyHelp = {};

function header() {
  const themes = ["auto", "light", "dark"];
  const theme = el("button", { type: "button", class: "quiet" });
  const show = (/** @type {string} */ name) => {
    document.documentElement.dataset.theme = name;
    theme.textContent = name === "auto" ? "Theme: auto" : `Theme: ${name}`;
  };
  show(remembered("theme") ?? "auto");
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % themes.length];
    remember("theme", next);
    show(next);
  });
  const saving = el("button", {
    type: "button", class: "quiet", title: "Save this view as a file that opens without a server",
    on: { click: () => save(location.hash).catch((error) => alertUser(String(error.message))) },
  }, "Save view");
  return el("header", {},
    el("a", { class: "skip", href: "#main", on: { click: skip } }, "Skip to the content"),
    el("a", { class: "brand", href: savedView || "#/" }, "WINK Evals"),
    el("nav", { "aria-label": "Views" }, el("a", { href: "#/" }, "Runs")),
    el("span", { class: "space" }),
    isShared ? el("span", { class: "chip" }, "saved view") : saving,
    theme,
    el("button", { type: "button", class: "quiet", "aria-label": "Keys", on: { click: showHelp } }, "?"));
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  main.focus();
}

/** @param {string} name */
function remembered(name) {
  try {
    return localStorage.getItem(`wink-${name}`);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string} value
 */
function remember(name, value) {
  try {
    localStorage.setItem(`wink-${name}`, value);
  } catch {
    // a file, or storage that is turned off: it is only a preference
  }
}

/** @param {string} text */
function alertUser(text) {
  const note = el("p", { class: "toast", role: "alert" }, text);
  document.body.append(note);
  setTimeout(() => note.remove(), 6_000);
}

function showHelp() {
  const all = { ...keyHelp, "/": "search", "?": "this help", Esc: "close" };
  fill(help, el("h2", {}, "Keys"),
    el("dl", {}, Object.entries(all).flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
  help.showModal();
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (target.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (event.key === "?") showHelp();
  else if (event.key === "/") /** @type {HTMLElement | null} */ (document.querySelector("input[type=search]"))?.focus();
  else if (event.key in keys) keys[event.key]();
  else return;
  event.preventDefault();
});

async function route() {
  leaving.abort();
  leaving = new AbortController();
  newScreen();
  keys = {};
  keyHelp = {};
  const { path, query } = parse(location.hash || (savedView ?? ""));
  const signal = leaving.signal;
  const show = screens[path[0] ?? ""];
  if (!show) {
    fill(main, el("p", { class: "problem" }, "There is no such view. "), el("a", { href: "#/" }, "All runs"));
    return;
  }
  main.setAttribute("aria-busy", "true");
  try {
    await show({
      path: path.slice(1), query, signal, main,
      onKey: (/** @type {any} */ given, /** @type {any} */ words) => {
        keys = given;
        keyHelp = words;
      },
    });
  } catch (error) {
    if (signal.aborted) return;
    fill(main, el("p", { class: "problem", role: "alert" }, /** @type {Error} */ (error).message), el("p", {}, el("a", { href: "#/" }, "All runs")));
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

/** Say that the page needs the new address of the server; go on when it was opened in any tab. */
async function waitForAccess() {
  main.before(el("p", { class: "notice refused", role: "alert" },
    "The server was started again with a new token. Open the address that ", el("code", {}, "wink view"), " printed, here or in another tab; this page then continues."));
  const isTyping = () => /** @type {HTMLInputElement | null} */ (document.activeElement?.closest("input, textarea"))?.value;
  do await new Promise((resolve) => setTimeout(resolve, 1_000));
  while (document.hidden || isTyping() || !(await isAccepted()));
  location.reload();
}

window.addEventListener("wink-refused", () => void waitForAccess(), { once: true });
window.addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  void route();
});
fill(app, header(), document.getElementById("note"), main, help);
void route();
