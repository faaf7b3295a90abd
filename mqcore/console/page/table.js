// A table that the server searches, sorts and cuts into pages; and what all views share.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element[name] = value;
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Change a text only where it differs: the page keeps its selection, and layout its work.
export function put(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

// A count or a rate in few characters, as `mq top` shows it.
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (value && value < 10 && value !== Math.trunc(value)) return value.toFixed(1);
  for (const unit of ["", "k", "M", "G", "T"]) {
    if (value < 999.5) return (unit === "" || value >= 99.5 ? value.toFixed(0)
                                                           : value.toFixed(1)) + unit;
    value /= 1000;
  }
  return value.toFixed(0) + "P";
}

export const exact = (value) => value === null || value === undefined ? "–"
  : value.toLocaleString("en-US");
export const seconds = (value) => value === null || value === undefined ? "–"
  : value < 1 ? `${(value * 1000).toFixed(1)} ms` : value < 120 ? `${value.toFixed(1)} s`
  : `${number(value / 60)} min`;
export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

// columns: {key, label, show(row), number, open, sort}; key(row) tells rows apart.
export class Table {
  constructor({ columns, key, caption, find = "Search", empty, open, changed }) {
    Object.assign(this, { columns, key, open, changed, empty });
    this.search = make("input", { type: "search", maxlength: "200", "aria-label": find,
      placeholder: find, oninput: () => this.ask({ find: this.search.value, page: 0 }) });
    this.count = make("span", { class: "dim", role: "status" });
    this.back = make("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = make("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.heads = columns.map((column) => this.head(column));
    this.body = make("tbody", { role: "rowgroup" });
    const table = make("table", { class: "wide", role: "table", "aria-label": caption },
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...this.heads)), this.body);
    this.nothing = make("p", { class: "dim" });
    this.element = make("div", {}, make("div", { class: "tools" }, this.search, this.count,
      this.back, this.next), table, this.nothing);
    this.clear();
  }

  // Nothing is asked for, and nothing is shown.
  clear() {
    this.asked = { find: "", sort: "", reverse: false, page: 0 };
    this.search.value = "";
    this.pages = 1;
    this.rows = new Map();
    this.body.replaceChildren();
    this.back.hidden = this.next.hidden = true;
    put(this.count, "");
    put(this.nothing, "");
  }

  head(column) {
    const sort = column.sort === undefined ? column.key : column.sort;
    const attributes = { scope: "col", role: "columnheader", class: column.number ? "n" : "" };
    if (!sort) return make("th", attributes, column.label);
    const head = make("th", attributes, make("button", { type: "button", onclick: () => this.ask({
      sort, page: 0, reverse: (this.asked.sort || this.shown) === sort
        && !this.asked.reverse }) }, column.label));
    head.dataset.sort = sort;
    return head;
  }

  ask(changes) {
    this.asked = { ...this.asked, ...changes };
    this.changed();
  }

  turn(by) { this.ask({ page: Math.min(this.pages - 1, Math.max(0, this.asked.page + by)) }); }

  // asked: what the answer is to. Meanwhile a click may have asked for another page.
  render(answer, asked) {
    this.shown = answer.sort;
    this.pages = answer.pages;
    if (this.asked === asked) this.asked.page = answer.page;
    for (const head of this.heads) {
      if (head.dataset.sort === answer.sort) {
        head.setAttribute("aria-sort", answer.reverse ? "ascending" : "descending");
      } else head.removeAttribute("aria-sort");
    }
    const of = answer.found === answer.of ? exact(answer.of)
      : `${exact(answer.found)} of ${exact(answer.of)}`;
    put(this.count, of + (answer.pages > 1 ? `, page ${answer.page + 1} of ${answer.pages}` : "")
      + (answer.left_out ? `; ${exact(answer.left_out)} are not listed` : ""));
    this.back.hidden = this.next.hidden = answer.pages < 2;
    this.back.disabled = answer.page === 0;
    this.next.disabled = answer.page + 1 >= answer.pages;
    put(this.nothing, answer.rows.length ? "" : answer.of ? "Nothing fits the search." : this.empty);
    const focused = document.activeElement;
    const before = this.rows;
    this.rows = new Map();
    answer.rows.forEach((row, index) => {
      let key = this.key(row);
      while (this.rows.has(key)) key = `${key}+`;     // two components may have one name
      const line = before.get(key) || this.line();
      before.delete(key);
      this.rows.set(key, line);
      line.row = row;
      this.columns.forEach((column, i) => this.fill(line.cells[i], column, row));
      if (this.body.children[index] !== line) this.body.insertBefore(line, this.body.children[index]);
    });
    for (const line of before.values()) line.remove();
    if (focused !== document.activeElement) (focused.isConnected ? focused : this.search).focus();
  }

  line() {
    const line = make("tr", { role: "row" });
    for (const column of this.columns) {
      line.append(make("td", { role: "cell", class: column.number ? "n" : "",
        "data-label": column.label }, ...column.open ? [make("button", { type: "button",
          onclick: () => this.open(line.row) })] : []));
    }
    return line;
  }

  fill(cell, column, row) {
    const value = column.show ? column.show(row) : row[column.key];
    put(cell.firstElementChild || cell, value === null || value === undefined ? "–" : String(value));
    cell.classList.toggle("bad", Boolean(column.bad && column.bad(row)));
  }
}
