// The tables of samples. All data is unpacked here, and put on the page as text, never as markup.
"use strict";

const VERDICTS = ["pass", "fail", "error"];
const PAGE = 50;
const ITEMS = 256; // in a block, at most
const blocks = new Map();
let data;

function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function item(kind, place) {
  if (place < 0) return null;
  const id = `${kind}-${Math.floor(place / ITEMS)}`;
  if (!blocks.has(id)) blocks.set(id, unpack(id));
  return (await blocks.get(id))[place % ITEMS];
}

// ── what a sample opens to ─────────────────────────────────────────────────────────────────────

const LEFT_OUT = "left out, to keep this page small. To see it: wink eval show RUN SAMPLE";

const scroll = (label, table) =>
  make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);

const note = (text) => make("p", { class: "note" }, text);

function texts(core) {
  return core.p.map(([title, text]) =>
    make("section", { class: title.startsWith("Error") ? "part error" : "part" },
      make("h3", null, title), make("pre", { tabindex: "0" }, text)));
}

function scores(core) {
  if (!core.s.length) return null;
  const rows = core.s.map(([passed, value, name, reason]) =>
    make("tr", null,
      make("th", { scope: "row" }, name),
      make("td", null, passed < 0 ? "" : verdict(passed ? 0 : 1)),
      make("td", { class: "num" }, value),
      make("td", { class: "reason" }, make("div", null, reason))));
  const head = ["Criterion", "Verdict", "Value", "Reason"].map((label, at) =>
    make("th", { scope: "col", class: at === 2 ? "num" : null }, label));
  return make("section", { class: "part whole" }, make("h3", null, "Scores"),
    scroll("Scores", make("table", null, make("thead", null, make("tr", null, ...head)),
      make("tbody", null, ...rows))));
}

function message([role, name, text, calls]) {
  return make("li", { class: `message ${role}` },
    make("div", { class: "role" }, make("b", null, role), name ? ` ${name}` : null),
    make("div", { class: "said" },
      text ? make("pre", null, text) : null,
      ...calls.map(([called, id, given]) =>
        make("div", { class: "call" },
          make("div", { class: "role" }, "calls ", make("b", null, called), id ? ` ${id}` : null),
          make("pre", null, given)))));
}

function transcript(found, place) {
  if (place === -1) return null; // there was none
  const section = make("section", { class: "part whole" });
  if (!found || found.m.length) section.append(make("h3", null, "Transcript"));
  if (!found) {
    section.append(note(`The transcript is ${LEFT_OUT}`));
    return section;
  }
  if (found.m.length) section.append(make("ol", { class: "messages" }, ...found.m.map(message)));
  if (found.n) section.append(note(`${found.n} more messages and events are ${LEFT_OUT}`));
  if (found.e.length) {
    const rows = found.e.map(([time, kind, text]) =>
      make("tr", null, make("td", { class: "time" }, time), make("th", { scope: "row" }, kind),
        make("td", { class: "reason" }, make("div", null, text))));
    const head = ["Time", "Event", "What it says"].map((label) =>
      make("th", { scope: "col" }, label));
    section.append(make("h3", null, "Session"),
      scroll("Session", make("table", { class: "events" },
        make("thead", null, make("tr", null, ...head)), make("tbody", null, ...rows))));
  }
  return section;
}

async function sheet(title, core, place) {
  const found = await item("core", core);
  const told = await item("transcript", place);
  const heading = title ? make("h3", { class: "side" }, title) : null;
  if (!found) {
    return make("div", { class: "sheet" }, heading, note(`This sample is ${LEFT_OUT}`));
  }
  return make("div", { class: "sheet" }, heading,
    make("p", { class: "facts" }, found.f), ...texts(found), scores(found),
    transcript(told, place));
}

async function details(row) {
  const paired = data.was && data.oldCore[row] !== -1; // as for flips
  const title = paired ? `B: ${VERDICTS[data.verdict[row]]}` : "";
  const own = await sheet(title, data.core[row], data.transcript[row]);
  if (!paired) return own;
  const before = `A: ${VERDICTS[data.was[row]]}`;
  const old = await sheet(before, data.oldCore[row], data.oldTranscript[row]);
  return make("div", { class: "sides" }, old, own);
}

// ── a table: filter, sort, page ────────────────────────────────────────────────────────────────

const verdict = (code) => make("span", { class: `verdict ${VERDICTS[code]}` }, VERDICTS[code]);
const varied = (name) => data[name].some((value) => value !== data[name][0]);
const some = (name) => data[name].some((value) => value);
function duration(ms) {
  if (ms < 99.5) return `${ms} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const whole = Math.round(ms / 1000);
  if (whole < 60) return `${whole} s`;
  const two = (part) => String(part).padStart(2, "0");
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours ? `${hours}:${two(minutes)}:${two(rest)} h` : `${minutes}:${two(rest)} min`;
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return value.toExponential(2);
  return value.toLocaleString("en", size < 1e6
    ? { minimumFractionDigits: 3, maximumFractionDigits: 3 } : { maximumFractionDigits: 0 });
}

// As many digits as the largest needs: a column of costs is read from the left.
function money() {
  const most = data.cost.reduce((a, b) => Math.max(a, b), 0);
  const digits = most > 0 && most < 1 ? 2 - Math.floor(Math.log10(most)) : 2;
  return (cost) => `$${cost.toFixed(digits)}`;
}


function columns() {
  const dollars = money();
  const shown = {
    verdict: (row) => verdict(data.verdict[row]),
    was: (row) => (data.was[row] < 0 ? "none" : verdict(data.was[row])),
    value: (row) => (data.value[row] === null ? "" : number(data.value[row])),
    latency: (row) => duration(data.latency[row]),
    tokens: (row) => data.tokens[row].toLocaleString("en"),
    cost: (row) => (data.cost[row] === null ? "" : dollars(data.cost[row])),
  };
  return [
    ["verdict", "Verdict", null, true],
    ["was", "Before", null, Boolean(data.was)],
    ["value", "Value", "num", true],
    ["epoch", "Epoch", "num", varied("epoch")],
    ["experiment", "Experiment", "wide", varied("experiment")],
    ["input", "Input", "text wide", some("input")],
    ["said", "Reason or output", "text", some("said")],
    ["latency", "Latency", "num wide", true],
    ["tokens", "Tokens", "num wide", some("tokens")],
    ["cost", "Cost", "num wide", some("cost")],
  ].filter(([, , , wanted]) => wanted).map(([name, label, style]) =>
    ({ name, label, style, cell: shown[name] || ((row) => String(data[name][row])) }));
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return a < b ? -1 : 1;
}

function samplesTable(root, rows, kinds) {
  const shown = columns();
  const state = { kind: "", text: "", by: "", down: false, page: 0, open: new Set() };
  const place = root.id;
  const noun = varied("epoch") || varied("experiment") ? "row" : "sample";
  const kind = make("select",
    { onchange: () => { state.kind = kind.value; restart(); } },
    ...[["", "all"], ...kinds].map(([value, label]) => make("option", { value }, label)));
  const text = make("input", {
    type: "search", autocomplete: "off", spellcheck: "false",
    oninput: () => { state.text = text.value.toLowerCase(); restart(); },
  });
  const count = make("p", { class: "count", role: "status" });
  const body = make("tbody");
  const heads = [{ name: "id", label: "Sample" }, ...shown].map((column) => {
    const sort = () => sortBy(column.name);
    const button = make("button", { type: "button", onclick: sort }, column.label);
    return [column.name, make("th", { scope: "col", class: column.style }, button)];
  });
  const earlier = make("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const later = make("button", { type: "button", onclick: () => turn(1) }, "Next");
  const at = make("span");
  const label = `Pages: ${root.dataset.label}`;
  const pages = make("nav", { class: "pages", "aria-label": label }, earlier, at, later);
  let found = rows;
  let turnOf = 0;

  root.replaceChildren(
    make("div", { class: "controls" },
      make("label", null, "Show", kind), make("label", null, "Search", text), count),
    make("table", { class: "samples" },
      make("caption", { class: "unseen" }, root.dataset.label),
      make("thead", null, make("tr", null, ...heads.map(([, head]) => head))), body),
    pages);

  function restart() { state.page = 0; return draw(); }
  async function turn(by) {
    state.page += by;
    await draw();
    root.scrollIntoView({ block: "start" });
  }
  function sortBy(name) {
    if (state.by !== name) { state.by = name; state.down = false; }
    else if (!state.down) state.down = true;
    else { state.by = ""; state.down = false; }
    restart();
  }

  async function holds(row) {
    if (!state.text) return true;
    const line = `${data.id[row]}\n${data.input[row]}\n${data.said[row]}`;
    if (line.toLowerCase().includes(state.text)) return true;
    const core = await item("core", data.core[row]);
    return core !== null && JSON.stringify([core.p, core.s]).toLowerCase().includes(state.text);
  }

  const fits = (row) => {
    if (!state.kind) return true;
    if (state.kind === "fixed") return data.verdict[row] === 0 && data.was[row] > 0;
    if (state.kind === "broken") return data.verdict[row] !== 0 && data.was[row] === 0;
    return VERDICTS[data.verdict[row]] === state.kind;
  };

  async function draw() {
    const mine = ++turnOf;
    const kept = [];
    for (const row of rows) if (fits(row) && (await holds(row))) kept.push(row);
    if (mine !== turnOf) return; // something else was asked for in the meantime
    found = kept;
    if (state.by) {
      const sign = state.down ? -1 : 1;
      found.sort((a, b) => sign * compare(data[state.by][a], data[state.by][b]) || a - b);
    }
    const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
    state.page = Math.min(Math.max(0, state.page), last);
    for (const [name, head] of heads) {
      const order = state.down ? "descending" : "ascending";
      head.setAttribute("aria-sort", state.by === name ? order : "none");
    }
    const begin = state.page * PAGE;
    const lines = [];
    for (const row of found.slice(begin, begin + PAGE)) lines.push(...await line(row));
    if (mine !== turnOf) return;
    body.replaceChildren(...lines);
    const [part, whole] = [found, rows].map((each) => each.length.toLocaleString("en"));
    const amount = part === whole ? whole : `${part} of ${whole}`;
    count.textContent = `${amount} ${noun}${rows.length === 1 ? "" : "s"}`;
    at.textContent = `Page ${state.page + 1} of ${last + 1}`;
    earlier.disabled = state.page === 0;
    later.disabled = state.page === last;
    pages.hidden = last === 0;
  }

  async function line(row) {
    const id = `${place}-row-${row}`;
    const attributes = { type: "button", class: "opens", "aria-expanded": "false", onclick: toggle };
    const button = make("button", attributes, make("span", null, data.id[row]));
    const cells = shown.map((column) =>
      make("td", { class: column.style }, column.cell(row)));
    const main = make("tr", { id }, make("th", { scope: "row" }, button), ...cells);
    const below = make("td", { colspan: shown.length + 1 });
    const more = make("tr", { class: "more", id: `${id}-more` }, below);
    more.hidden = true;
    button.setAttribute("aria-controls", more.id);
    async function open() {
      if (!below.firstChild) below.append(await details(row));
      more.hidden = false;
      button.setAttribute("aria-expanded", "true");
    }
    async function toggle() {
      if (state.open.delete(row)) {
        more.hidden = true;
        button.setAttribute("aria-expanded", "false");
      } else {
        state.open.add(row);
        await open();
      }
    }
    if (state.open.has(row)) await open();
    return [main, more];
  }

  async function show(row) {
    const page = Math.floor(rows.indexOf(row) / PAGE);
    Object.assign(state, { kind: "", text: "", by: "", page });
    kind.value = text.value = "";
    state.open.add(row);
    await draw();
    const main = document.getElementById(`${place}-row-${row}`);
    if (!main) return;
    main.scrollIntoView({ block: "start" });
    main.querySelector("button").focus({ preventScroll: true });
  }

  return { draw, show };
}

// ── begin ──────────────────────────────────────────────────────────────────────────────────────

async function begin() {
  const root = document.getElementById("samples-table");
  if (!root) return;
  if (typeof DecompressionStream === "undefined") {
    root.replaceChildren(note("This browser is too old: the samples need DecompressionStream."));
    return;
  }
  data = await unpack("index");
  const rows = data.id.map((_, row) => row);
  const flipped = (row) => data.was[row] >= 0 && !data.verdict[row] !== !data.was[row];
  const flips = data.was ? rows.filter(flipped) : [];
  const kinds = [["pass", "passed"], ["fail", "failed"], ["error", "errors"]];
  const changes = [["broken", "broken"], ["fixed", "fixed"]];
  const samples = samplesTable(root, rows, flips.length ? [...kinds, ...changes] : kinds);
  const drawn = [samples.draw()];
  const beside = document.getElementById("flips-table");
  if (beside && flips.length) drawn.push(samplesTable(beside, flips, changes).draw());
  await Promise.all(drawn);
  const follow = () => {
    const named = /^#row-(\d+)$/.exec(location.hash);
    if (named && Number(named[1]) < rows.length) samples.show(Number(named[1]));
  };
  addEventListener("hashchange", follow);
  follow();
}

begin().catch((error) => {
  const root = document.getElementById("samples-table");
  if (root) root.replaceChildren(note(`The samples cannot be shown: ${error}`));
});
