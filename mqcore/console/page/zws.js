// A small ZeroMQ client for web pages: ZWS 2.0 (RFC 45) over the browser's own WebSocket.
//
//   const req = new Req("ws://127.0.0.1:5555/sum");
//   const [answer] = await req.request("40 2");          // a Uint8Array per part; text(answer)
//
//   const sub = new Sub("ws://127.0.0.1:5556/ticks", "clock");
//   for (;;) show(await sub.recv());
//
// A message is an array of parts; a part goes in as text or bytes and comes out as Uint8Array. A
// lost connection is opened anew, subscriptions are sent again, and what was not yet handed to the
// browser's socket waits for the next one. Req, Sub, Dealer, Push and Pull are all alike below.

const MORE = 1, COMMAND = 2;
const encoder = new TextEncoder(), decoder = new TextDecoder();

export const bytes = (part) => typeof part === "string" ? encoder.encode(part) : part;
export const text = (part) => decoder.decode(part);

function join(...pieces) {
  pieces = pieces.map((piece) => Array.isArray(piece) ? Uint8Array.from(piece) : bytes(piece));
  const all = new Uint8Array(pieces.reduce((n, piece) => n + piece.length, 0));
  let at = 0;
  for (const piece of pieces) { all.set(piece, at); at += piece.length; }
  return all;
}

class Socket {
  constructor(url, { routingId = "", reconnect = 0.2, reconnectMax = 10 } = {}) {
    Object.assign(this, { url, routingId, reconnect, reconnectMax });
    this.out = [];               // messages that no connection has had
    this.inbox = [];             // messages that nobody has asked for
    this.waiting = [];           // calls of recv() that wait for one
    this.parts = [];             // of the message that is coming in
    this.pause = reconnect;
    this.closed = false;
    this.onstate = () => {};     // called with "ready", or "lost" and why
    this.#open();
  }

  #open() {
    this.peer = null;            // its routing id has not come
    this.since = Infinity;       // when it came, in ms
    // "ZWS2.0/NULL", with READY commands, is no token, so browsers refuse to offer it
    const ws = this.ws = new WebSocket(this.url, ["ZWS2.0"]);
    ws.binaryType = "arraybuffer";
    ws.onopen = () => ws.send(join([0], this.routingId));
    ws.onmessage = (event) => this.#frame(new Uint8Array(event.data));
    ws.onclose = (event) => {
      this.parts = [];           // half a message is none
      // a server that ends each connection soon is not asked five times a second
      if (performance.now() - this.since > this.reconnectMax * 1000) this.pause = this.reconnect;
      this.onstate("lost", event.reason || `code ${event.code}`);
      if (this.closed) return;
      setTimeout(() => { if (!this.closed) this.#open(); }, this.pause * 1000);
      this.pause = Math.min(this.pause * 2, this.reconnectMax);
    };
  }

  #frame(frame) {
    const body = frame.subarray(1);
    if (!this.peer) { this.#ready(body); return; }
    if (frame[0] & COMMAND) return;     // none for us: heartbeats are the browser's work
    this.parts.push(body);
    if (frame[0] & MORE) return;
    const message = this.parts;
    this.parts = [];
    this.onreceived(message);
  }

  #ready(routingId) {
    this.peer = routingId;
    this.since = performance.now();
    this.onready();
    const out = this.out;
    this.out = [];
    for (const message of out) this.#write(message);
    this.onstate("ready");
  }

  #write(message) {
    if (!this.peer || this.ws.readyState !== WebSocket.OPEN) { this.out.push(message); return; }
    message.forEach((part, i) => this.ws.send(
      join([i < message.length - 1 ? MORE : 0], part)));
  }

  onready() {}                   // a pattern's turn: a new peer is there

  onreceived(message) {
    const call = this.waiting.shift();
    if (call) call(message); else this.inbox.push(message);
  }

  send(...parts) { this.#write(parts.map(bytes)); }

  // One message, when there is one.
  recv() {
    if (this.inbox.length) return Promise.resolve(this.inbox.shift());
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  close() {
    this.closed = true;
    this.ws.close(1000);
  }
}

export class Dealer extends Socket {}
export class Push extends Socket {}
export class Pull extends Socket {}

// One request at a time; one that was under way when the connection broke is sent again.
export class Req extends Socket {
  constructor(url, options) {
    super(url, options);
    this.line = Promise.resolve();
  }

  onready() { if (this.asked) super.send("", ...this.asked); }

  onreceived(message) {
    if (this.asked && message[0].length === 0) super.onreceived(message.slice(1));
  }

  request(...parts) {
    const answer = this.line.then(async () => {
      this.asked = parts;
      if (this.peer) super.send("", ...parts);
      const reply = await this.recv();
      this.asked = null;
      return reply;
    });
    this.line = answer.catch(() => {});
    return answer;
  }
}

// Prefixes to subscribe to; "" is everything.
export class Sub extends Socket {
  constructor(url, ...topics) {
    super(url);
    this.topics = new Set(topics);
  }

  onready() { for (const topic of this.topics) this.#tell(1, topic); }

  #tell(what, topic) { if (this.peer) super.send(join([what], topic)); }

  subscribe(topic) { this.topics.add(topic); this.#tell(1, topic); }

  unsubscribe(topic) { if (this.topics.delete(topic)) this.#tell(0, topic); }
}
