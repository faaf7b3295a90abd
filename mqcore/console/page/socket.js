// One socket: its facts, endpoints and peers, its explanation, and with --control its messages.

import { Table, clock, exact, make, number, put, seconds } from "./table.js";

const LIMIT = 200;      // watched messages on the page
const SEND = new Set(["pull", "gather", "rep", "router", "sub", "xsub", "server", "respondent",
  "pair", "dealer"]);

export const PEERS = [
  { key: "address", label: "address" }, { key: "their_pattern", label: "pattern", sort: "" },
  { key: "out", label: "out/s", number: true, show: (row) => number(row.out) },
  { key: "in", label: "in/s", number: true, show: (row) => number(row.in) },
  { key: "bytes", label: "bytes/s", number: true, show: (row) => number(row.bytes) },
  { key: "queued", label: "queued", number: true, show: (row) => number(row.queued),
    bad: (row) => row.queued >= 1000 },
  { key: "drops", label: "drops", number: true, show: (row) => number(row.drops),
    bad: (row) => row.drop_rate > 0 },
  { key: "rtt", label: "round trip", number: true, show: (row) => seconds(row.rtt) },
];

const parts = (found) => found.map((part) => part.kind === "hex" ? `0x${part.text}` : part.text)
  .join(" | ");

export class Socket_ {
  constructor({ ask, changed, back }) {
    this.ask = ask;
    this.watch = null;
    this.facts = make("dl");
    this.endpoints = make("ul");
    this.text = make("pre", { tabindex: "0", hidden: "" });
    this.peers = new Table({ columns: PEERS, key: (row) => row.id, caption: "Peers",
      find: "Search peers", empty: "No peer is connected.", changed });
    this.control = make("div");
    this.element = make("div", {},
      make("div", { class: "tools" },
        make("button", { type: "button", onclick: back }, "Back"),
        make("button", { type: "button", id: "explain", onclick: () => this.explain() },
          "Explain")),
      this.text, this.facts, make("h3", {}, "Endpoints"), this.endpoints, this.control,
      make("h3", {}, "Peers"), this.peers.element);
  }

  open(row) {
    this.row = { context: row.context, socket: row.socket };
    this.text.hidden = true;
    this.name = "";
    this.peers.clear();
    this.facts.replaceChildren();
    this.endpoints.replaceChildren();
    this.lines = null;
    this.control.replaceChildren();
    this.offered = false;
    this.stop();
  }

  // The page shows something else. Answers that are still due find another row.
  leave() {
    this.row = null;
    this.stop();
  }

  async explain() {
    put(this.text, "Asking …");
    this.text.hidden = false;
    const row = this.row;
    const answer = await this.ask({ op: "explain", ...row });
    if (row === this.row) put(this.text, answer.text);
  }

  async refresh() {
    const row = this.row;
    const found = await this.ask({ op: "socket", ...row });
    if (row !== this.row || found.op === "failure") return found;
    this.show(found);
    const asked = this.peers.asked;
    const answer = await this.ask({ op: "peers", ...row, ...asked });
    if (row === this.row && answer.op === "peers") this.peers.render(answer, asked);
    if (this.watch) await this.watched();
    return found;
  }

  show(found) {
    const row = found.row;
    this.name = `${row.pattern} ${row.socket} of ${row.program} ${row.pid}`;
    const facts = {
      "sent, received": `${exact(found.sent)}, ${exact(found.received)} messages`,
      "now": `${number(row.out)} out/s, ${number(row.in)} in/s, ${number(row.bytes)} bytes/s`,
      "queued": `${exact(row.queued)} (high-water marks: send ${found.send_hwm ?? "none"}, ` +
        `receive ${found.recv_hwm ?? "none"})`,
      "drops": Object.entries(found.dropped).map(([why, n]) => `${why} ${exact(n)}`).join(", ")
        || "none",
      "unmatched": exact(found.unmatched),
      "connections": `${exact(found.reconnects)} made again, ` +
        `${exact(found.failed_handshakes)} failed handshakes, ${exact(found.broken_peers)} broken`,
    };
    const names = Object.keys(facts);
    if (this.facts.children.length !== names.length * 2) {
      this.facts.replaceChildren(...names.flatMap((name) =>
        [make("dt", {}, name), make("dd")]));
    }
    names.forEach((name, i) => put(this.facts.children[i * 2 + 1], facts[name]));
    const lines = found.endpoints.map((one) =>
      `${one.kind} ${one.url}: ${one.state}${one.error ? `, ${one.error}` : ""}`);
    if (found.more_endpoints) lines.push(`and ${found.more_endpoints} more`);
    if (lines.join("\n") !== this.lines) {
      this.lines = lines.join("\n");
      this.endpoints.replaceChildren(...lines.map((line) => make("li", {}, line)));
    }
    if (!this.endpoints.children.length) this.endpoints.append(make("li", {}, "none"));
    if (!this.offered && found.totals.control) this.offer(row.pattern);
    this.offered = true;
  }

  // -- messages, with --control

  offer(pattern) {
    if (SEND.has(pattern)) this.control.append(...this.sender());
    if (pattern === "pub" || pattern === "xpub") this.control.append(...this.watcher());
  }

  sender() {
    const body = make("textarea", { name: "body", required: "" });
    const hex = make("input", { type: "checkbox", name: "hex" });
    const said = make("pre", { id: "sent", role: "status", hidden: "" });
    const form = make("form", { id: "send" },
      make("label", {}, "Message, one part per line", body),
      make("label", { class: "check" }, hex, "hexadecimal"), make("button", {}, "Send"));
    form.onsubmit = async (event) => {
      event.preventDefault();
      const answer = await this.ask({ op: "send", ...this.row, hex: hex.checked,
        parts: body.value.split("\n"), id: crypto.getRandomValues(new Uint32Array(3)).join(".") });
      said.hidden = false;
      put(said, answer.op === "failure" ? `Not sent: ${answer.text}`
        : `Sent to ${answer.url} in ${seconds(answer.seconds)}.`
          + (answer.reply ? `\nReply: ${parts(answer.reply)}` : "")
          + (answer.note ? `\n${answer.note}` : ""));
    };
    return [make("h3", {}, "Send a message"), form, said];
  }

  watcher() {
    const topic = make("input", { name: "topic", maxlength: "200" });
    // The second click of a double click is none, whether the first has been answered or not.
    this.button = make("button", { onclick: (event) => {
      if (event.detail > 1) event.preventDefault();
    } }, "Watch");
    let asking = false;
    this.messages = make("pre", { id: "watched", tabindex: "0", "aria-label": "Messages",
      hidden: "" });
    this.seen = make("p", { class: "dim", role: "status" });
    const form = make("form", { id: "watch" },
      make("label", {}, "Topic; empty: everything", topic), this.button);
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (this.watch) { this.stop(); return; }
      if (asking) return;
      asking = true;
      const row = this.row;
      const answer = await this.ask({ op: "watch", ...row, topic: topic.value });
      asking = false;
      if (row !== this.row) {       // another socket has been opened, or this one left
        if (answer.watch) this.ask({ op: "unwatch", watch: answer.watch });
        return;
      }
      if (answer.op === "failure") { put(this.seen, answer.text); return; }
      this.watch = { number: answer.watch, since: 0, lines: [] };
      put(this.button, "Stop");
      await this.watched();
    };
    return [make("h3", {}, "Watch messages"), form, this.seen, this.messages];
  }

  async watched() {
    const watch = this.watch;
    const answer = await this.ask({ op: "watched", watch: watch.number, since: watch.since });
    if (watch !== this.watch) return;
    if (answer.op === "failure") { put(this.seen, answer.text); this.stop(); return; }
    for (const one of answer.messages) {
      watch.since = one.number;
      watch.lines.push(`${clock(one.at)}  ${parts(one.parts)}`);
    }
    watch.lines = watch.lines.slice(-LIMIT);
    put(this.seen, `${exact(answer.seen)} messages`
      + (answer.connected ? "" : ", not connected"));
    this.messages.hidden = !watch.lines.length;
    put(this.messages, watch.lines.join("\n"));
  }

  stop() {
    if (this.watch) this.ask({ op: "unwatch", watch: this.watch.number });
    this.watch = null;
    if (this.button) put(this.button, "Watch");
  }
}
