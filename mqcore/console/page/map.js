// The map: a box for each process, its sockets in it, and the connections between them.

import { make, put } from "./table.js";

const WIDTH = 250, ROW = 40, TITLE = 26, GAP = 24, BETWEEN = 130, MARGIN = 16, LETTERS = 34;

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const short = (text) => text.length <= LETTERS ? text
  : `${text.slice(0, LETTERS / 2)}…${text.slice(1 - LETTERS / 2)}`;
const box = (x, y, width, height, kind) =>
  draw("rect", { class: kind, x, y, width, height, rx: 4 });
const words = (x, y, text, kind = "") => draw("text", { x, y, class: kind }, text);

export class Map_ {
  constructor({ open }) {
    this.open = open;
    this.note = make("p", { class: "dim" });
    this.frame = make("div", { class: "scroll", tabindex: "0", role: "region",
      "aria-label": "Map of connections" });
    this.list = make("ul");
    this.element = make("div", {}, this.note, this.frame,
      make("details", {}, make("summary", {}, "The same as a list"), this.list));
    this.drawn = "";
  }

  render(answer) {
    const more = [];
    if (answer.more_edges) more.push(`${answer.more_edges} connections with less traffic`);
    if (answer.more_sockets) more.push(`${answer.more_sockets} sockets`);
    if (answer.left_out) more.push(`the peers of ${answer.left_out} connections`);
    put(this.note, !answer.columns.length ? "No sockets are monitored."
      : more.length ? `Not shown: ${more.join(", ")}.` : "");
    const { columns, edges } = answer;
    const drawn = JSON.stringify([columns, edges]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const focused = document.activeElement && document.activeElement.getAttribute("data-node");
    this.picture(columns, edges);
    if (focused) this.frame.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
  }

  picture(columns, edges) {
    const shapes = [], spots = new Map(), names = new Map();
    let height = 0;
    columns.forEach((groups, column) => {
      const x = MARGIN + column * (WIDTH + BETWEEN);
      let y = MARGIN;
      for (const { group, nodes } of groups) {
        const tall = TITLE + nodes.length * ROW + 8;
        shapes.push(box(x, y, WIDTH, tall, "group"), words(x + 10, y + 18, short(group), "title"));
        nodes.forEach((node, index) => {
          const top = y + TITLE + index * ROW;
          names.set(node.id, `${node.title} of ${group}`);
          spots.set(node.id, [x, top + (ROW - 6) / 2]);
          shapes.push(this.node(node, group, x, top));
        });
        y += tall + GAP;
      }
      height = Math.max(height, y);
    });
    const width = 2 * MARGIN + columns.length * (WIDTH + BETWEEN) - BETWEEN + 60;
    const lines = edges.map((edge) => this.edge(edge, spots));
    this.frame.replaceChildren(draw("svg", { class: "map", width, height: height + MARGIN,
      viewBox: `0 0 ${width} ${height + MARGIN}`, role: "group",
      "aria-label": "Who is connected to whom" }, ...lines, ...shapes));
    this.list.replaceChildren(...edges.map((edge) => make("li", {},
      `${names.get(edge.from)} → ${names.get(edge.to)}: ${edge.text}`)));
  }

  node(node, group, x, top) {
    const inside = [box(x + 10, top, WIDTH - 20, ROW - 6, node.outside ? "outside" : "socket"),
      words(x + 18, top + 14, node.title), words(x + 18, top + 28, short(node.label), "note"),
      draw("title", {}, `${node.title} of ${group}, ${node.label}`)];
    if (node.outside) return draw("g", {}, ...inside);
    const link = draw("a", { href: "#", tabindex: 0, "data-node": `${node.context} ${node.socket}`,
      "aria-label": `${node.title} of ${group}` }, ...inside);
    link.onclick = (event) => { event.preventDefault(); this.open(node); };
    return link;
  }

  edge(edge, spots) {
    const [x1, y1] = spots.get(edge.from), [x2, y2] = spots.get(edge.to);
    let path;
    if (x1 === x2) {        // in one column: round its right side
      const side = x1 + WIDTH - 10, bend = 40 + 8 * (Math.floor(Math.abs(y2 - y1) / ROW) % 4);
      path = `M${side},${y1} C${side + bend},${y1} ${side + bend},${y2} ${side},${y2}`;
    } else {
      const [from, to] = x1 < x2 ? [x1 + WIDTH - 10, x2 + 10] : [x1 + 10, x2 + WIDTH - 10];
      const half = (from + to) / 2;
      path = `M${from},${y1} C${half},${y1} ${half},${y2} ${to},${y2}`;
    }
    return draw("path", { class: edge.drops ? "edge drops" : "edge", d: path },
      draw("title", {}, edge.text));
  }
}
