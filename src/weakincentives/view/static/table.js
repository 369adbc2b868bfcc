// @ts-check
/**
 * A table of any length. Only the rows in sight are in the document; pages are fetched as one scrolls.
 * Keys: arrows, Page Up and Down, Home and End move the current row, Enter opens it.
 */

import { append, el } from "./dom.js";

const ROW = 36;
const PAGE = 100;
const SPARE = 6;

/**
 * @typedef {{key: string, title: string, width: number, grow?: number, number?: boolean, dense?: boolean, order?: string,
 *   cell: (row: any) => any}} Column
 * @typedef {{columns: Column[], fetch: (offset: number, limit: number) => Promise<{rows: any[], total: number}>,
 *   href: (row: any) => string, order: string, descending: boolean, onOrder: (order: string, descending: boolean) => void,
 *   label: string, empty: string, onPage?: (page: any) => void}} TableOptions
 */

export class WinkTable extends HTMLElement {
  constructor() {
    super();
    /** @type {TableOptions | null} */
    this.options = null;
    /** @type {Map<number, any[]>} */
    this.pages = new Map();
    /** @type {Set<number>} */
    this.loading = new Set();
    this.total = 0;
    this.current = 0;
    this.turn = 0;
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.scroller = el("div", { class: "scroller", tabindex: "0", role: "table" });
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.onKey(event));
    this.observer = new ResizeObserver(() => this.draw());
  }

  connectedCallback() {
    this.observer.observe(this.scroller);
  }

  disconnectedCallback() {
    this.observer.disconnect();
  }

  /** @param {TableOptions} options */
  async show(options) {
    this.options = options;
    const widths = options.columns.map(({ width, grow }) => (grow ? `minmax(${width}rem, ${grow}fr)` : `${width}rem`));
    this.style.setProperty("--columns", widths.join(" "));
    this.style.setProperty("--least", `${options.columns.reduce((sum, column) => sum + column.width, 0)}rem`);
    const tall = options.columns.some((column) => column.dense);
    this.style.setProperty("--head", tall ? "10rem" : "2.25rem");
    const head = el("div", { class: "head", role: "row" }, options.columns.map((column) => this.heading(column)));
    this.scroller.setAttribute("aria-label", options.label);
    this.scroller.replaceChildren(el("div", { role: "rowgroup", class: "heads" }, head), this.body);
    if (!this.scroller.isConnected) this.append(this.scroller);
    await this.refresh();
  }

  /** Fetch everything in sight again, and stay where we are. */
  async refresh() {
    this.turn += 1;
    this.pages.clear();
    this.loading.clear();
    await this.load(Math.floor(this.firstVisible() / PAGE));
  }

  /** @param {Column} column */
  heading(column) {
    const options = /** @type {TableOptions} */ (this.options);
    const sorted = column.order !== undefined && column.order === options.order;
    const sort = sorted ? (options.descending ? "descending" : "ascending") : null;
    const content = column.order === undefined ? column.title : el("button", {
      type: "button", title: `${column.title}: sort by it`,
      on: { click: () => options.onOrder(column.order ?? "", sorted ? !options.descending : false) },
    }, column.title, sort && el("span", { "aria-hidden": "true" }, sort === "descending" ? " ↓" : " ↑"));
    return el("div", { role: "columnheader", class: `cell${column.number ? " number" : ""}${column.dense ? " dense" : ""}`, "aria-sort": sort },
      column.dense ? el("div", { class: "vertical" }, content) : content);
  }

  firstVisible() {
    return Math.max(0, Math.floor(this.scroller.scrollTop / ROW));
  }

  /** @param {number} page */
  async load(page) {
    if (this.pages.has(page) || this.loading.has(page)) return;
    const options = /** @type {TableOptions} */ (this.options);
    const turn = this.turn;
    this.loading.add(page);
    try {
      const answer = await options.fetch(page * PAGE, PAGE);
      if (turn !== this.turn) return;
      this.pages.set(page, answer.rows);
      this.total = answer.total;
      options.onPage?.(answer);
      this.draw();
    } catch (error) {
      if (turn === this.turn && !(error instanceof DOMException)) {
        this.body.replaceChildren(el("p", { class: "problem" }, String(/** @type {Error} */ (error).message)));
      }
    } finally {
      this.loading.delete(page);
    }
  }

  draw() {
    const options = this.options;
    if (!options) return;
    this.scroller.setAttribute("aria-rowcount", String(this.total + 1));
    this.style.setProperty("--rows", String(Math.max(this.total, 3)));
    this.body.style.height = `${Math.max(this.total, 1) * ROW}px`;
    const first = Math.max(0, this.firstVisible() - SPARE);
    const last = Math.min(this.total, this.firstVisible() + Math.ceil(this.scroller.clientHeight / ROW) + SPARE);
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const row = this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
      if (row) rows.push(this.row(row, index, options));
      else void this.load(Math.floor(index / PAGE));
    }
    if (!this.total) rows.push(el("div", { class: "row empty", role: "row" }, el("div", { role: "cell" }, options.empty)));
    this.body.replaceChildren(...rows);
  }

  /**
   * @param {any} row
   * @param {number} index
   * @param {TableOptions} options
   */
  row(row, index, options) {
    const element = el("div", {
      class: `row${index === this.current ? " current" : ""}`, role: "row", "aria-rowindex": index + 2,
      on: { click: (/** @type {MouseEvent} */ event) => this.open(event, row) },
    });
    element.style.transform = `translateY(${index * ROW}px)`;
    options.columns.forEach((column, at) => {
      const cell = el("div", { class: `cell${column.number ? " number" : ""}${column.dense ? " dense" : ""}`, role: at ? "cell" : "rowheader" });
      const content = column.cell(row);
      append(cell, [at ? content : el("a", { href: options.href(row), tabindex: "-1", title: row[column.key] }, content)]);
      element.append(cell);
    });
    return element;
  }

  /**
   * @param {MouseEvent} event
   * @param {any} row
   */
  open(event, row) {
    if (event.defaultPrevented || /** @type {Element} */ (event.target).closest("a, button, input")) return;
    if (window.getSelection()?.toString()) return;
    location.hash = /** @type {TableOptions} */ (this.options).href(row);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const screenful = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const moves = /** @type {{[key: string]: number}} */ ({
      ArrowDown: 1, ArrowUp: -1, PageDown: screenful, PageUp: -screenful, Home: -this.total, End: this.total,
    });
    if (event.key in moves) {
      this.current = Math.max(0, Math.min(this.total - 1, this.current + moves[event.key]));
      const top = this.current * ROW;
      const high = this.scroller.clientHeight - 2 * ROW;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top > this.scroller.scrollTop + high) this.scroller.scrollTop = top - high;
      this.draw();
      event.preventDefault();
    } else if (event.key === "Enter" && event.target === this.scroller) {
      const row = this.pages.get(Math.floor(this.current / PAGE))?.[this.current % PAGE];
      if (row) location.hash = /** @type {TableOptions} */ (this.options).href(row);
    }
  }
}

customElements.define("wink-table", WinkTable);
