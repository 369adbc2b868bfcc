// The tables of samples. All data is unpacked here, and put on the page as text, never as markup.
"use strict";

const VERDICTS = ["pass", "fail", "error"];
const PAGE = 50;
const ITEMS = 256; // in a block, at most
const CACHED = 24; // blocks that stay unpacked
const REDRAW_MS = 150; // while a search goes on
let data;
let about;

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

// ── packed data ────────────────────────────────────────────────────────────────────────────────

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

const textOf = (id) => document.getElementById(id).textContent;

// A line for each column: its name, and its values.
async function unpackColumns() {
  const columns = textOf("index").trim().split("\n").map((line) => line.split(" "));
  const values = await Promise.all(columns.map(([, packed]) => unpack(packed)));
  return Object.fromEntries(columns.map(([name], at) => [name, values[at]]));
}

const waiting = new Map(); // parts of a folder that are being loaded
const blocks = new Map(); // unpacked, the one used last at the end

globalThis.addPart = (number, packed) => waiting.get(number)(packed);

function loadPart(number) {
  return new Promise((resolve, reject) => {
    const source = `parts/${number}.js`;
    const script = make("script", { src: source });
    waiting.set(number, (packed) => { script.remove(); resolve(packed); });
    script.addEventListener("error", () => reject(new Error(`${source} cannot be loaded`)));
    document.head.append(script);
  });
}

function block(number) {
  let found = blocks.get(number);
  if (found) blocks.delete(number);
  else if (about.folder) found = loadPart(number).then(unpack);
  else found = unpack(textOf(`part-${number}`));
  blocks.set(number, found);
  if (blocks.size > CACHED) blocks.delete(blocks.keys().next().value);
  return found;
}

// Null for an item that the page does not have.
async function item(place) {
  return place < 0 ? null : (await block(Math.floor(place / ITEMS)))[place % ITEMS];
}

// ── search ─────────────────────────────────────────────────────────────────────────────────────

// All texts of an item; of a flip, those of the other run.
function textsOf(found) {
  if (found.d) return [...found.c.flatMap((line) => line.slice(0, 3)), ...(found.a ? textsOf(found.a) : [])];
  const texts = [found.f, ...found.p.map(([, text]) => text)];
  for (const [, , name, reason] of found.s) texts.push(name, reason);
  for (const [role, name, text, calls] of found.m || []) texts.push(role, name, text, ...calls.flat());
  for (const [, kind, text] of found.e || []) texts.push(kind, text);
  return texts;
}

// The items of these rows, by block: each block is unpacked once.
function itemsByBlock(rows) {
  const found = new Map();
  for (const row of rows) {
    for (const place of [data.place[row], data.flip ? data.flip[row] : -1]) {
      if (place < 0) continue;
      const number = Math.floor(place / ITEMS);
      if (!found.has(number)) found.set(number, []);
      found.get(number).push([row, place % ITEMS]);
    }
  }
  return [...found].sort(([a], [b]) => a - b);
}

// Calls `report(found rows, items searched, items in all)` after each block; stops if it is false.
async function search(rows, words, report) {
  const holds = (text) => text.toLowerCase().includes(words);
  const found = new Set(rows.filter((row) =>
    holds(`${data.id[row]}\n${data.input[row]}\n${data.reason[row]}`)));
  const work = itemsByBlock(rows);
  const all = work.reduce((sum, [, items]) => sum + items.length, 0);
  let done = 0;
  if (!report(found, done, all)) return;
  for (const [number, items] of work) {
    const unpacked = await block(number);
    for (const [row, at] of items) {
      if (!found.has(row) && textsOf(unpacked[at]).some(holds)) found.add(row);
    }
    done += items.length;
    if (!report(found, done, all)) return;
  }
}

// ── what a sample opens to ─────────────────────────────────────────────────────────────────────

const LEFT_OUT = "not in this page, which has too many samples. A page with everything: "
  + "wink eval report --full";

const scroll = (label, table, style = "scroll") =>
  make("div", { class: style, tabindex: "0", role: "region", "aria-label": label }, table);

const note = (text) => make("p", { class: "note" }, text);

function tableOf(label, heads, rows, style) {
  const head = heads.map((name) =>
    make("th", { scope: "col", class: name === "Value" ? "num" : null }, name));
  return scroll(label, make("table", { class: style }, make("thead", null, make("tr", null, ...head)),
    make("tbody", null, ...rows)));
}

const reasonCell = (text) => make("td", { class: "reason" }, make("div", null, text));

const part = ([title, text]) =>
  make("section", { class: title.startsWith("Error") ? "part error" : "part" },
    make("h3", null, title), make("pre", { tabindex: "0" }, text));

function scores(core) {
  if (!core.s.length) return null;
  const rows = core.s.map(([passed, value, name, reason]) =>
    make("tr", null,
      make("th", { scope: "row" }, name),
      make("td", null, passed < 0 ? "" : verdict(passed ? 0 : 1)),
      make("td", { class: "num" }, value), reasonCell(reason)));
  return make("section", { class: "part whole" }, make("h3", null, "Scores"),
    tableOf("Scores", ["Criterion", "Verdict", "Value", "Reason"], rows));
}

// JSON of a tool in several lines; any other text as it is.
function laidOut(text) {
  if (text.length <= 80 || !/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function message([role, name, text, calls]) {
  return make("li", { class: `message ${role}` },
    make("div", { class: "role" }, make("b", null, role), name ? ` ${name}` : null),
    make("div", { class: "content" },
      text ? make("pre", null, laidOut(text)) : null,
      ...calls.map(([called, id, given]) =>
        make("div", { class: "call" },
          make("div", { class: "role" }, "calls ", make("b", null, called), id ? ` ${id}` : null),
          make("pre", null, given)))));
}

function transcript(core) {
  if (!core.m) return null;
  const section = make("section", { class: "part whole" });
  if (core.m.length) {
    section.append(make("h3", null, "Transcript"),
      make("ol", { class: "messages" }, ...core.m.map(message)));
  }
  if (core.n) section.append(note(`${core.n} more messages and events are too many for this page.`));
  if (core.e.length) {
    const rows = core.e.map(([time, kind, text]) =>
      make("tr", null, make("td", { class: "time" }, time), make("th", { scope: "row" }, kind),
        reasonCell(text)));
    section.append(make("h3", null, "Session"),
      tableOf("Session", ["Time", "Event", "What it says"], rows, "events"));
  }
  return section;
}

function sheet(title, core, parts) {
  const heading = title ? make("h3", { class: "side" }, title) : null;
  if (!core) return make("div", { class: "sheet" }, heading, note(`This sample is ${LEFT_OUT}`));
  return make("div", { class: "sheet" }, heading, make("p", { class: "facts" }, core.f),
    ...parts.map(part), scores(core), transcript(core));
}

function criteriaThatFlipped(flip) {
  if (!flip.c.length) return null;
  const rows = flip.c.map(([name, oldReason, newReason, before, after]) =>
    make("tr", null, make("th", { scope: "row" }, name),
      make("td", null, verdict(before ? 0 : 1), ` ${oldReason}`),
      make("td", null, verdict(after ? 0 : 1), ` ${newReason}`)));
  return make("section", { class: "part whole" }, make("h3", null, "Criteria that flipped"),
    tableOf("Criteria that flipped", ["Criterion", "A", "B"], rows));
}

function outputDiff(flip) {
  const elements = { removed: "del", added: "ins" };
  const parts = flip.d.map(([kind, text]) =>
    (elements[kind] ? make(elements[kind], null, text) : text));
  const body = parts.length ? make("pre", { tabindex: "0" }, ...parts)
    : make("p", { class: "legend" }, "The outputs of A and B are equal, or one has none.");
  return make("section", { class: "part whole" }, make("h3", null, "Output, from A to B"), body);
}

// What both sides share is printed once.
function bothSides(row, own, flip) {
  const shared = new Map(own ? own.p : []);
  const isShared = ([title, text]) => /^(Input|Expected|Metadata)$/.test(title)
    && shared.get(title) === text;
  const both = flip.a && own ? flip.a.p.filter(isShared) : [];
  const titles = new Set(both.map(([title]) => title));
  const rest = (core) => (core ? core.p.filter(([title]) => !titles.has(title)) : []);
  return make("div", null,
    make("div", { class: "shared" }, ...both.map(part), criteriaThatFlipped(flip), outputDiff(flip)),
    make("div", { class: "sides" },
      sheet(`A: ${flip.v}`, flip.a, rest(flip.a)),
      sheet(`B: ${VERDICTS[data.verdict[row]]}`, own, rest(own))));
}

async function details(row) {
  const own = await item(data.place[row]);
  const flip = data.flip ? await item(data.flip[row]) : null;
  if (flip) return bothSides(row, own, flip);
  const alone = sheet("", own, own ? own.p : []);
  if (own && data.flip && data.flip[row] !== -1) alone.prepend(note(`The other run's side is ${LEFT_OUT}`));
  return alone;
}

// ── columns ────────────────────────────────────────────────────────────────────────────────────

const verdict = (code) => make("span", { class: `verdict ${VERDICTS[code]}` }, VERDICTS[code]);
const varied = (name) => data[name].some((value) => value !== data[name][0]);
const some = (name) => data[name].some((value) => value);
const count = (number) => number.toLocaleString("en");

function duration(ms) {
  if (ms < 99.5) return `${ms} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const whole = Math.round(ms / 1000);
  if (whole < 60) return `${whole} s`;
  const two = (digits) => String(digits).padStart(2, "0");
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
  const largest = data.cost.reduce((a, b) => Math.max(a, b), 0);
  const digits = largest > 0 && largest < 1 ? 2 - Math.floor(Math.log10(largest)) : 2;
  return (cost) => `$${cost.toFixed(digits)}`;
}

// The value of a criterion in a row; null if it has none.
const scoreOf = (row, at) => data.scores[row][at] ?? null;

function criterionColumn(label, at) {
  const cell = (row) => {
    const value = scoreOf(row, at);
    if (value === null) return "";
    const passed = !data.failed[row].includes(at);
    const short = Math.abs(value) < 1e6 ? String(Number(value.toFixed(3))) : number(value);
    return make("span", { class: `mark ${passed ? "pass" : "fail"}` }, short,
      make("span", { class: "unseen" }, passed ? " passed" : " failed"));
  };
  return { name: `criterion:${label}`, label, style: "num criterion", cell, key: (row) => scoreOf(row, at) };
}

function columns() {
  const dollars = money();
  const cells = {
    verdict: (row) => verdict(data.verdict[row]),
    was: (row) => (data.was[row] < 0 ? "none" : verdict(data.was[row])),
    value: (row) => (data.value[row] === null ? "" : number(data.value[row])),
    input: (row) => make("div", null, data.input[row]),
    reason: (row) => make("div", null, data.reason[row]),
    latency: (row) => duration(data.latency[row]),
    tokens: (row) => (data.tokens[row] === null ? "" : count(data.tokens[row])),
    cost: (row) => (data.cost[row] === null ? "" : dollars(data.cost[row])),
  };
  const column = ([name, label, style, wanted]) => (wanted ? [{ name, label, style,
    cell: cells[name] || ((row) => String(data[name][row])), key: (row) => data[name][row] }] : []);
  return [
    ...[
      ["verdict", "Verdict", null, true],
      ["was", "Before", null, Boolean(data.was)],
      ["value", "Value", "num spare", about.criteria.length !== 1],
      ["epoch", "Epoch", "num", varied("epoch")],
      ["experiment", "Experiment", "wide", varied("experiment")],
      ["input", "Input", "text wide", some("input")],
      ["reason", "Reason or output", "text", some("reason")],
    ].flatMap(column),
    ...about.criteria.map(criterionColumn),
    ...[
      ["latency", "Latency", "num wide", true],
      ["tokens", "Tokens", "num wide", some("tokens")],
      ["cost", "Cost", "num wide", some("cost")],
    ].flatMap(column),
  ];
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return a < b ? -1 : 1;
}

// ── filters ────────────────────────────────────────────────────────────────────────────────────

// A filter: its name in the address, its label, groups of choices, and the rows that it keeps.
function filters(rows, kinds) {
  const keepKind = (row, kind) => {
    if (kind === "fixed") return data.verdict[row] === 0 && data.was[row] > 0;
    if (kind === "broken") return data.verdict[row] !== 0 && data.was[row] === 0;
    return VERDICTS[data.verdict[row]] === kind;
  };
  const failures = about.criteria.map(() => 0);
  const uses = about.pairs.map(() => 0);
  for (const row of rows) {
    for (const at of data.failed[row]) failures[at] += 1;
    for (const pair of data.metadata[row]) uses[pair] += 1;
  }
  const criteria = about.criteria.map((name, at) => [name, `${name} (${count(failures[at])})`, at])
    .filter(([, , at]) => failures[at]);
  const values = new Map(); // of the metadata, by key
  about.pairs.forEach((pair, at) => {
    if (!pair || !uses[at] || uses[at] === rows.length) return;
    if (!values.has(pair[0])) values.set(pair[0], []);
    values.get(pair[0]).push([pair.join("="), `${pair[1]} (${count(uses[at])})`]);
  });
  const pairs = new Map(about.pairs.map((pair, at) => [pair && pair.join("="), at]));
  const groups = [...values].map(([key, choices]) =>
    [key, choices.sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))]);
  return [
    { name: "show", label: "Show", every: "all", groups: [["", kinds]], keep: keepKind },
    { name: "failed", label: "Criterion failed", every: "any", groups: [["", criteria]],
      keep: (row, name) => data.failed[row].includes(about.criteria.indexOf(name)) },
    { name: "meta", label: "Metadata", every: "any", groups,
      keep: (row, pair) => data.metadata[row].includes(pairs.get(pair)) },
  ].filter((each) => each.groups.some(([, choices]) => choices.length));
}

function choice({ label, every, groups }, onchange) {
  const options = (choices) => choices.map(([value, text]) => make("option", { value }, text));
  const select = make("select", { onchange }, make("option", { value: "" }, every),
    ...groups.flatMap(([key, choices]) =>
      (key ? [make("optgroup", { label: key }, ...options(choices))] : options(choices))));
  return [select, make("label", null, label, select)];
}

// ── a table: filter, search, sort, page ────────────────────────────────────────────────────────

function samplesTable(root, rows, kinds, onchange) {
  const listed = columns();
  // `named`: the row that the address names, whose page is shown.
  const state = { by: "", down: false, page: 0, open: new Set(), named: null };
  const noun = varied("epoch") || varied("experiment") ? "row" : "sample";
  const chosen = filters(rows, kinds).map((filter) => [filter, ...choice(filter, restart)]);
  const text = make("input",
    { type: "search", autocomplete: "off", spellcheck: "false", oninput: restart });
  const status = make("p", { class: "count", role: "status" });
  const body = make("tbody");
  const sample = { name: "id", label: "Sample", key: (row) => data.id[row] };
  const heads = [sample, ...listed].map((column) => {
    const sort = () => sortBy(column.name);
    const button = make("button", { type: "button", onclick: sort }, column.label);
    return [column, make("th", { scope: "col", class: column.style }, button)];
  });
  const earlier = make("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const later = make("button", { type: "button", onclick: () => turn(1) }, "Next");
  const at = make("span");
  const pages = make("nav",
    { class: "pages", "aria-label": `Pages: ${root.dataset.label}` }, earlier, at, later);
  const lines = new Map(); // of the rows that are on the page now
  let turnOf = 0;

  root.replaceChildren(
    make("div", { class: "controls" }, ...chosen.map(([, , label]) => label),
      make("label", null, "Search", text), status),
    scroll(root.dataset.label, make("table", { class: "samples" },
      make("caption", { class: "unseen" }, root.dataset.label),
      make("thead", null, make("tr", null, ...heads.map(([, head]) => head))), body), "rows"),
    pages);

  function restart() {
    Object.assign(state, { page: 0, named: null });
    onchange();
    return draw();
  }
  async function turn(by) {
    Object.assign(state, { page: state.page + by, named: null });
    await draw();
    root.scrollIntoView({ block: "start" });
  }
  function sortBy(name) {
    if (state.by !== name) { state.by = name; state.down = false; }
    else if (!state.down) state.down = true;
    else { state.by = ""; state.down = false; }
    restart();
  }

  function filtered() {
    const set = chosen.filter(([, select]) => select.value);
    return rows.filter((row) => set.every(([filter, select]) => filter.keep(row, select.value)));
  }

  async function draw() {
    const mine = ++turnOf;
    const candidates = filtered();
    const words = text.value.trim().toLowerCase();
    if (!words) {
      render(candidates);
      status.textContent = amount(candidates);
      return;
    }
    const unsearched = candidates.filter((row) => data.place[row] < 0).length;
    let drawn = 0;
    try {
      await search(candidates, words, (found, done, all) => {
        if (mine !== turnOf) return false; // something else was asked for in the meantime
        if (done < all && performance.now() - drawn < REDRAW_MS) return true;
        drawn = performance.now();
        const matches = candidates.filter((row) => found.has(row));
        render(matches);
        const missing = unsearched
          ? `; the texts of ${count(unsearched)} ${noun}s are not in this page and were not searched` : "";
        status.textContent = done < all
          ? `Searching… ${count(done)} of ${count(all)} texts, ${count(matches.length)} found`
          : amount(matches) + missing;
        return true;
      });
    } catch (error) {
      if (mine === turnOf) status.textContent = `The search stopped: ${error.message}`;
    }
  }

  function amount(found) {
    const whole = `${count(rows.length)} ${noun}${rows.length === 1 ? "" : "s"}`;
    return found.length === rows.length ? whole : `${count(found.length)} of ${whole}`;
  }

  function render(found) {
    const by = heads.find(([column]) => column.name === state.by);
    if (by) {
      const [sign, key] = [state.down ? -1 : 1, by[0].key];
      found.sort((a, b) => sign * compare(key(a), key(b)));
    }
    const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
    if (state.named !== null) {
      const row = found.indexOf(state.named);
      if (row >= 0) state.page = Math.floor(row / PAGE);
    }
    state.page = Math.min(Math.max(0, state.page), last);
    for (const [column, head] of heads) {
      const order = state.down ? "descending" : "ascending";
      head.setAttribute("aria-sort", state.by === column.name ? order : "none");
    }
    const begin = state.page * PAGE;
    const shown = found.slice(begin, begin + PAGE);
    const wanted = new Set(shown);
    for (const row of lines.keys()) if (!wanted.has(row)) lines.delete(row);
    for (const row of shown) if (!lines.has(row)) lines.set(row, line(row));
    body.replaceChildren(...shown.flatMap((row) => lines.get(row).elements));
    at.textContent = `Page ${state.page + 1} of ${last + 1}`;
    earlier.disabled = state.page === 0;
    later.disabled = state.page === last;
    pages.hidden = last === 0;
  }

  function line(row) {
    const id = `${root.id}-row-${row}`;
    const attributes = { type: "button", class: "opens", "aria-expanded": "false", onclick: toggle };
    const button = make("button", attributes, make("span", null, data.id[row]));
    const cells = listed.map((column) =>
      make("td", { class: column.style }, column.cell(row)));
    const main = make("tr", { id }, make("th", { scope: "row" }, button), ...cells);
    const below = make("div", { class: "below" });
    const more = make("tr", { class: "more", id: `${id}-more` },
      make("td", { colspan: listed.length + 1 }, below));
    more.hidden = true;
    button.setAttribute("aria-controls", more.id);
    let filled = null;
    const fill = () => details(row).catch((error) =>
      note(`This sample cannot be shown: ${error.message}`)).then((shown) => below.append(shown));
    async function open() {
      state.open.add(row);
      button.setAttribute("aria-expanded", "true");
      filled ??= fill();
      await filled;
      more.hidden = !state.open.has(row);
    }
    async function toggle() {
      if (state.open.delete(row)) {
        more.hidden = true;
        button.setAttribute("aria-expanded", "false");
      } else {
        onchange(row);
        await open();
      }
    }
    if (state.open.has(row)) open();
    return { elements: [main, more], button, open };
  }

  // Set the filters from the address, then open the sample that it names.
  async function show(parameters, row) {
    const [by, down] = [parameters.get("sort") || "", parameters.get("order") === "down"];
    Object.assign(state, { by, down, page: 0, named: row });
    text.value = parameters.get("q") || "";
    for (const [filter, select] of chosen) select.value = parameters.get(filter.name) || "";
    for (const [, select] of chosen) if (select.selectedIndex < 0) select.value = "";
    await draw();
    if (row === null) return;
    const found = lines.get(row);
    if (!found) { await show(new URLSearchParams(), row); return; } // filtered out
    await found.open();
    found.elements[0].scrollIntoView({ block: "start" });
    found.button.focus({ preventScroll: true });
  }

  function parameters() {
    const set = chosen.map(([filter, select]) => [filter.name, select.value]);
    set.push(["q", text.value.trim()], ["sort", state.by], ["order", state.down ? "down" : ""]);
    return set.filter(([, value]) => value);
  }

  return { draw, show, parameters };
}

// ── the address ────────────────────────────────────────────────────────────────────────────────

const KNOWN = ["sample", "show", "failed", "meta", "q", "sort"];

function namesOf(row) {
  const names = [["sample", data.id[row]]];
  if (varied("epoch")) names.push(["epoch", data.epoch[row]]);
  if (varied("experiment")) names.push(["experiment", data.experiment[row]]);
  return names;
}

// The first row that the address names; null if it names none.
function namedRow(parameters, rows) {
  if (!parameters.has("sample")) return null;
  const is = (name, row) => !parameters.has(name) || parameters.get(name) === String(data[name][row]);
  const found = rows.find((row) => data.id[row] === parameters.get("sample")
    && is("epoch", row) && is("experiment", row));
  return found === undefined ? null : found;
}

function setAddress(parameters) {
  const encoded = parameters.map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
  history.replaceState(null, "", encoded ? `#${encoded}` : location.href.split("#")[0]);
}

function addressParameters() {
  // Not as a form: in an id, "+" is a plus.
  return new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
}

// ── begin ──────────────────────────────────────────────────────────────────────────────────────

async function begin() {
  const root = document.getElementById("samples-table");
  if (!root) return;
  if (typeof DecompressionStream === "undefined") {
    root.replaceChildren(note("This browser is too old: the samples need DecompressionStream."));
    return;
  }
  [data, about] = await Promise.all([unpackColumns(), unpack(textOf("about"))]);
  // Rows are stored with failures first; they are shown in dataset order.
  const rows = data.id.map((_, row) => row).sort((a, b) =>
    data.position[a] - data.position[b] || data.epoch[a] - data.epoch[b]
    || compare(data.experiment[a], data.experiment[b]) || compare(data.id[a], data.id[b]));
  const flips = data.was ? rows.filter((row) => data.flip[row] !== -1) : [];
  const kinds = [["pass", "passed"], ["fail", "failed"], ["error", "errors"]];
  const changes = [["broken", "broken"], ["fixed", "fixed"]];
  let opened = null;
  const samples = samplesTable(root, rows, flips.length ? [...kinds, ...changes] : kinds, (row) => {
    if (row !== undefined) opened = row;
    setAddress([...samples.parameters(), ...(opened === null ? [] : namesOf(opened))]);
  });
  const beside = document.getElementById("flips-table");
  const ofFlip = (row) => { if (row !== undefined) setAddress(namesOf(row)); };
  const drawn = beside && flips.length ? samplesTable(beside, flips, changes, ofFlip).draw() : null;
  const follow = () => {
    const parameters = addressParameters();
    if (!KNOWN.some((name) => parameters.has(name))) return samples.draw();
    opened = namedRow(parameters, rows);
    return samples.show(parameters, opened);
  };
  await Promise.all([drawn, follow()]);
  addEventListener("hashchange", follow);
}

begin().catch((error) => {
  const root = document.getElementById("samples-table");
  if (root) root.replaceChildren(note(`The samples cannot be shown: ${error}`));
});
