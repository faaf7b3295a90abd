// The page of `mq console`. It asks once a second for what it shows, over the console's REP, and
// only while it is visible.

import { Map_ } from "./map.js";
import { PEERS, Socket_ } from "./socket.js";
import { Table, clock, exact, make, number, put, seconds } from "./table.js";
import { Req, bytes, text } from "./zws.js";

const EVERY = 1000, POINTS = 60;
const LARGEST = 262144;     // bytes of a request, as requests.py has it
const PAGES = 16;           // that the console serves at once, as serving.py has it
const $ = (id) => document.getElementById(id);
const token = location.hash.slice(1);
const scheme = location.protocol === "https:" ? "wss" : "ws";
const port = document.querySelector("meta[name=live-port]").content;
const state = { view: "sockets", paused: false, lost: "", history: [], clock: 0 };
let wake = () => {};
let req = null;

async function ask(request) {
  const data = bytes(JSON.stringify(request));
  if (data.length > LARGEST) {    // the console would end the connection, again and again
    return { op: "failure", text: `this is too long by ${exact(data.length - LARGEST)} bytes` };
  }
  const [answer] = await req.request(data);
  return JSON.parse(text(answer));
}

// -- views

const program = (row) => `${row.program} ${row.pid}${row.name ? ` (${row.name})` : ""}`;
const drops = (row) => Object.entries(row.dropped).map(([why, n]) => `${why} ${number(n)}`)
  .join(", ") || "–";
const changed = () => wake();
const open = (row) => { if (row.socket) show("socket", row); };
const rate = (key, label) => ({ key, label, number: true, show: (row) => number(row[key]) });

const table = (op, options) => {
  const made = new Table({ changed, open, ...options });
  return { element: made.element, refresh: async () => {
    const asked = made.asked;
    const answer = await ask({ op, ...asked });
    if (answer.op === op) made.render(answer, asked);
    return answer;
  } };
};

const map = new Map_({ open });
const socket = new Socket_({ ask, changed, back: () => show(state.before || "sockets") });
const views = {
  sockets: { label: "Sockets", ...table("sockets", {
    caption: "Sockets", find: "Search sockets",
    empty: "No program is monitored. Start one with MQCORE_MONITOR=1 in its environment.",
    key: (row) => `${row.context} ${row.socket}`, columns: [
      { key: "pattern", label: "socket", open: true, show: (row) => `${row.pattern} ${row.socket}` },
      { key: "program", label: "program", show: program },
      { key: "endpoint", label: "endpoint", bad: (row) => row.errors.length, show: (row) =>
        (row.endpoint || "–") + (row.endpoints > 1 ? ` +${row.endpoints - 1}` : "")
        + (row.errors.length ? `: ${row.errors[0]}` : "") },
      rate("peers", "peers"), rate("out", "out/s"), rate("in", "in/s"), rate("bytes", "bytes/s"),
      rate("queued", "queued"),
      { key: "drops", label: "drops", show: drops, bad: (row) => row.drop_rate > 0 }] }) },
  peers: { label: "Slow peers", ...table("peers", {
    caption: "Peers, those with the longest queues first", find: "Search peers",
    empty: "No peer is connected.", key: (row) => `${row.context} ${row.socket} ${row.id}`,
    columns: [
      { key: "pattern", label: "socket", open: true, sort: "",
        show: (row) => `${row.pattern} ${row.socket}` },
      { key: "program", label: "program", show: (row) => `${row.program} ${row.pid}` },
      ...PEERS] }) },
  map: { label: "Map", element: map.element, refresh: async () => {
    const answer = await ask({ op: "map" });
    if (answer.op === "map") map.render(answer);
    return answer;
  } },
  components: { label: "Components", ...table("components", {
    caption: "Devices, journals, servers, queues, cluster nodes and bridges",
    find: "Search components", empty: "The programs have sockets only.",
    key: (row) => `${row.program} ${row.pid} ${row.kind} ${row.name}`, columns: [
      { key: "kind", label: "kind" },
      { key: "name", label: "name" },
      { key: "program", label: "program", show: (row) => `${row.program} ${row.pid}` },
      { key: "state", label: "state", bad: (row) => row.error || row.state !== "running",
        show: (row) => row.state + (row.error ? `: ${row.error}` : "") },
      { key: "counts", label: "counts", sort: "", show: (row) => Object.entries(row.counts)
        .map(([what, n]) => `${what} ${number(n)}`).join(", ") || "–" }] }) },
  journals: { label: "Journals", needs: "journals", ...table("journals", {
    caption: "Partitions of journals and their consumer groups", find: "Search journals",
    empty: "These journals have no topics.",
    key: (row) => `${row.where} ${row.topic} ${row.partition} ${row.group}`, columns: [
      { key: "topic", label: "topic", bad: (row) => row.error,
        show: (row) => row.error || row.topic },
      { key: "partition", label: "partition", number: true },
      { key: "group", label: "group", show: (row) => row.group || "–" },
      { key: "lag", label: "lag", number: true, show: (row) => exact(row.lag) },
      { key: "messages", label: "messages", number: true, show: (row) => exact(row.messages) },
      { key: "rate", label: "stored/s", number: true, show: (row) => number(row.rate) },
      { key: "where", label: "journal" }] }) },
  spark: { label: "Spark", needs: "spark", ...table("spark", {
    caption: "Spark's streaming queries", find: "Search queries", empty: "No query.",
    key: (row) => row.where, columns: [
      { key: "query", label: "query", bad: (row) => row.error,
        show: (row) => row.query + (row.error ? `: ${row.error}` : "") },
      { key: "batch", label: "last batch", number: true, show: (row) => exact(row.batch) },
      { key: "behind", label: "not finished", number: true, show: (row) => exact(row.behind) },
      { key: "age", label: "planned before", number: true, show: (row) => seconds(row.age) },
      { key: "sources", label: "offsets", sort: "", show: (row) => row.sources.join(" ") }] }) },
  events: { label: "Events", ...table("events", {
    caption: "Events, latest first", find: "Search events",
    empty: "Nothing has happened since the page was opened.", key: (row) => row.number, open,
    columns: [
      { key: "number", label: "time", show: (row) => clock(row.at) },
      { key: "kind", label: "event" },
      { key: "pattern", label: "socket", open: true, sort: "",
        show: (row) => `${row.pattern} ${row.socket}` },
      { key: "address", label: "peer", show: (row) => row.address || "–" },
      { key: "endpoint", label: "endpoint", show: (row) => row.endpoint || "–" },
      { key: "reason", label: "reason", sort: "", show: (row) => row.reason || "–" }] }) },
  socket: { label: "", element: socket.element, refresh: () => socket.refresh() },
};

for (const [name, view] of Object.entries(views)) {
  if (!view.label) continue;
  view.button = make("button", { type: "button", id: `view-${name}`, hidden: view.needs ? "" : false,
    onclick: () => show(name) }, view.label);
  $("views").append(view.button);
}

function show(name, row) {
  const leaving = state.view === "socket" && name !== "socket";     // its button is gone
  if (leaving) socket.leave();
  if (name === "socket") {
    if (state.view !== "socket") state.before = state.view;
    socket.open(row);
  }
  state.view = name;
  for (const [other, view] of Object.entries(views)) {
    if (!view.button) continue;
    if (other === name) view.button.setAttribute("aria-current", "page");
    else view.button.removeAttribute("aria-current");
  }
  put($("title"), views[name].label || `${row.pattern || row.title || "socket"}`);
  put($("note"), "");
  $("view").replaceChildren(views[name].element);
  if (name === "socket" || (row === undefined && leaving)) $("title").focus();
  wake();
}

// -- totals

const CARDS = [["programs", "programs", exact], ["sockets", "sockets", exact],
  ["peers", "peers", exact], ["out_rate", "out/s", number], ["in_rate", "in/s", number],
  ["bytes_rate", "bytes/s", number], ["queued", "queued", number], ["drop_rate", "drops/s", number],
  ["drops", "drops", number]];
const LINES = new Set(["out_rate", "in_rate", "bytes_rate", "queued", "drop_rate"]);
const SVG = "http://www.w3.org/2000/svg";
const cards = CARDS.map(([key, label, format]) => {
  const value = make("span", { class: "value" }, "–");
  const card = make("li", { id: `total-${key}` }, make("span", { class: "name" }, label), value);
  let line = null;
  if (LINES.has(key)) {
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", "0 0 60 16");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("aria-hidden", "true");
    line = document.createElementNS(SVG, "polyline");
    picture.append(line);
    card.append(picture);
  }
  $("cards").append(card);
  return { key, format, value, line };
});

function totals(found) {
  if (found.clock !== state.clock) {
    state.clock = found.clock;
    state.history.push(found);
    state.history = state.history.slice(-POINTS);
  }
  for (const { key, format, value, line } of cards) {
    put(value, format(found[key]));
    if (!line) continue;
    const most = Math.max(...state.history.map((one) => one[key]), 1e-9);
    line.setAttribute("points", state.history.map((one, i) =>
      `${60 - state.history.length + i + 1},${(15 - 14 * one[key] / most).toFixed(1)}`).join(" "));
  }
  for (const view of Object.values(views)) {
    if (view.needs) view.button.hidden = !found[view.needs];
  }
}

function status(found) {
  const old = found && (found.age === null || found.age > 5);
  const said = state.lost ? `Not connected: ${state.lost}` : state.paused ? "Paused"
    : !found ? "Connecting" : old ? "The programs answer slowly"
    : found.missing ? `Live; ${found.missing} programs do not answer`
    : found.failure ? `Live; a program refused: ${found.failure}` : "Live";
  put($("status"), said);
  $("status").classList.toggle("bad", Boolean(state.lost || old || found?.missing));
}

// -- the loop

async function refresh() {
  const view = state.view;
  const answer = await views[view].refresh();
  // a refusal, as of a socket that is closed, has none
  const found = answer.totals || (await ask({ op: "totals" })).totals;
  if (found) { totals(found); status(found); }
  if (view !== state.view) return;
  put($("note"), answer.op === "failure" ? answer.text : "");
  if (view === "socket" && socket.name) put($("title"), socket.name);
}

const pause = (time) => new Promise((done) => {
  const timer = setTimeout(done, time);
  wake = () => { clearTimeout(timer); done(); };
});

async function run() {
  const past = await ask({ op: "totals" });
  state.history = (past.history || []).slice(-POINTS);
  for (;;) {
    const began = performance.now();
    let early = false;
    wake = () => { early = true; };
    if (!state.paused && !document.hidden) await refresh();
    if (!early) await pause(Math.max(50, EVERY - (performance.now() - began)));
  }
}

$("pause").onclick = () => {
  state.paused = !state.paused;
  $("pause").setAttribute("aria-pressed", String(state.paused));
  status(null);
  wake();
};
$("skip").onclick = (event) => { event.preventDefault(); $("title").focus(); };
document.addEventListener("visibilitychange", () => wake());
window.addEventListener("hashchange", () => location.reload());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.view === "socket") show(state.before || "sockets");
});

if (!/^[\w-]+$/.test(token)) {
  put($("status"), token ? "The secret in the address is damaged: open the one that mq console has "
    + "printed." : "The address has no secret: open the one that mq console has printed.");
  $("status").classList.add("bad");
} else {
  req = new Req(`${scheme}://${location.hostname}:${port}/${token}`, { reconnectMax: 5 });
  req.onstate = (what, why) => {
    state.lost = what === "ready" ? ""
      : "is mq console still running, and is this the address that it printed? It serves "
      + `${PAGES} pages at once. (${why})`;
    status(null);
  };
  show("sockets");
  run();
}
