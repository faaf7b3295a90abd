// Zinc in a page: the document of document.py and a child's part of endpoint.py, in JavaScript.
//
//   const page = new Page(urls, (text) => show(text));
//   page.edit("new text");          // what has changed becomes edits

import { Push, Sub, text } from "./zws.js";

const HELD = 10000;                 // edits that wait for earlier ones
const hex = (counter) => counter.toString(16).padStart(8, "0");

export class Document {
  constructor(origin) {
    Object.assign(this, { origin, counter: 0, applied: 0, echoes: 0, repeated: 0, dropped: 0 });
    this.vector = {};
    this.own = [];                  // edits made here, for a host that has lost them
    this.held = new Map();
    this.left = new Map();
    this.char = new Map();
    this.next = new Map([["", ""]]);
  }

  ids() {
    const found = [];
    for (let at = this.next.get(""); at; at = this.next.get(at))
      if (this.char.get(at) !== null) found.push(at);
    return found;
  }

  text() { return this.ids().map((at) => this.char.get(at)).join(""); }

  insert(position, typed) {
    const left = position ? this.ids()[position - 1] : "";
    return this.#edit({ at: hex(this.counter + 1) + this.origin, left, text: typed });
  }

  delete(position, count) {
    return this.#edit({ gone: this.ids().slice(position, position + count) });
  }

  #edit(change) {
    const edit = { o: this.origin, n: (this.vector[this.origin] ?? 0) + 1, ...change };
    this.#apply(edit);
    this.own.push(edit);
    return edit;
  }

  offer(edits) {
    for (const edit of edits) {
      const name = `${edit.o} ${edit.n}`;
      if (edit.n <= (this.vector[edit.o] ?? 0) || this.held.has(name)) {
        if (edit.o === this.origin) this.echoes++; else this.repeated++;
      } else if (this.#fits(edit)) {
        this.#apply(edit);
      } else if (this.held.size >= HELD) {
        this.dropped++;
      } else {
        this.held.set(name, edit);
      }
    }
    for (let ready = true; ready;) {
      ready = false;
      for (const [name, edit] of this.held) {
        if (!this.#fits(edit)) continue;
        this.held.delete(name);
        this.#apply(edit);
        ready = true;
      }
    }
  }

  #fits(edit) {
    return edit.n === (this.vector[edit.o] ?? 0) + 1 && (
      edit.gone ? edit.gone.every((at) => this.char.has(at))
        : edit.left === "" || this.char.has(edit.left));
  }

  #apply(edit) {
    if (edit.gone) {
      for (const at of edit.gone) this.char.set(at, null);
    } else {
      let left = edit.left, counter = parseInt(edit.at.slice(0, 8), 16);
      for (const char of edit.text) {       // by code points, as Python does
        const at = hex(counter++) + edit.at.slice(8);
        this.#put(at, left, char);
        left = at;
      }
    }
    this.vector[edit.o] = edit.n;
    this.applied++;
  }

  #put(at, left, char) {
    if (this.char.has(at)) return;
    let before = left;
    while (this.next.get(before) > at) before = this.next.get(before);
    this.next.set(at, this.next.get(before));
    this.next.set(before, at);
    this.left.set(at, left);
    this.char.set(at, char);
    this.counter = Math.max(this.counter, parseInt(at.slice(0, 8), 16));
  }

  merge(state, vector) {
    for (const [at, left, char] of state) {
      if (!this.char.has(at)) this.#put(at, left, char);
      else if (char === null) this.char.set(at, null);
    }
    for (const [origin, number] of Object.entries(vector))
      this.vector[origin] = Math.max(number, this.vector[origin] ?? 0);
    this.offer([]);
  }
}

export class Page {
  constructor(urls, changed) {
    this.id = hex(crypto.getRandomValues(new Uint32Array(1))[0]);
    this.document = new Document(this.id);
    this.changed = changed;
    this.member = false;            // the host knows this page
    this.seen = 0;
    this.asked = 0;
    this.up = new Push(urls.up);
    this.down = new Sub(urls.down, "all", this.id);
    this.#receive();
    setInterval(() => { if (this.member) this.#have(); }, 300);     // so that the host sees it
  }

  edit(wanted) {
    const have = Array.from(this.document.text()), want = Array.from(wanted);
    let front = 0, back = 0;
    while (front < have.length && front < want.length && have[front] === want[front]) front++;
    while (back < have.length - front && back < want.length - front
      && have[have.length - 1 - back] === want[want.length - 1 - back]) back++;
    const gone = have.length - front - back, typed = want.slice(front, want.length - back);
    const edits = [];
    if (gone) edits.push(this.document.delete(front, gone));
    if (typed.length) edits.push(this.document.insert(front, typed.join("")));
    if (edits.length && this.member) this.#send({ kind: "edits", edits });
  }

  #send(message) { this.up.send(JSON.stringify({ from: this.id, ...message })); }

  #have() {
    if (performance.now() - this.asked < 100) return;
    this.asked = performance.now();
    this.#send({ kind: "have", vector: this.document.vector, below: 0 });
  }

  async #receive() {
    for (;;) {
      const message = JSON.parse(text((await this.down.recv())[1]));
      if (message.kind === "beat") this.#beat(message);
      else if (message.kind === "edits" && this.member) this.#edits(message);
    }
  }

  #beat({ kids, vector }) {
    this.member = kids.some(([id]) => id === this.id);
    if (!this.member) { this.#send({ kind: "join", at: [] }); return; }
    const mine = this.document.vector;
    if (Object.entries(vector).some(([origin, n]) => n > (mine[origin] ?? 0))) this.#have();
    const had = vector[this.id] ?? 0;
    this.document.own = this.document.own.filter((edit) => edit.n > had);
    if (this.document.own.length) this.#send({ kind: "edits", edits: this.document.own });
  }

  #edits(message) {
    if (message.number) {
      if (message.number !== this.seen + 1) this.#have();
      this.seen = message.number;
    }
    if (message.state) this.document.merge(message.state, message.vector);
    else this.document.offer(message.edits);
    this.changed(this.document.text());
  }
}
