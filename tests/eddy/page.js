// Runs the script of the live page without a browser: a document of a few lines, and one event.
// Arguments: the page, the data of an event. Prints what the page shows, by id, as JSON.
"use strict";
const fs = require("fs"), vm = require("vm");
const [page, event] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));

class Node {
  constructor(name) { Object.assign(this, {nodeName: name, children: [], attributes: {}, text: "", className: ""}); }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  set textContent(text) { this.text = String(text); this.children = []; }
  set innerHTML(text) { throw new Error("the page parses text as HTML"); }
  get textContent() { return [this.text, ...this.children.map((one) => one.textContent)].join("|"); }
  names() { return [this.nodeName, ...this.children.flatMap((one) => one.names())]; }
}

const byId = {};
let source;
const document = {
  title: "",
  getElementById: (id) => byId[id] ??= new Node("div"),
  createElement: (name) => new Node(name),
  createElementNS: (space, name) => new Node(name),
  importNode: (node) => node,
};
class EventSource { constructor(url) { this.url = url; source = this; } }
class DOMParser {
  parseFromString(text, kind) {
    const root = new Node(kind === "image/svg+xml" && text.startsWith("<svg") ? "svg" : "parsererror");
    root.text = text;
    return {documentElement: root};
  }
}
const script = /<script>([\s\S]*?)<\/script>/.exec(page)[1];
vm.runInNewContext(script, {document, EventSource, DOMParser, Date, setInterval: () => 0});
source.onmessage({data: event});
const shown = Object.fromEntries(Object.entries(byId).map(([id, node]) => [id, node.textContent]));
const names = Object.values(byId).flatMap((node) => node.names());
console.log(JSON.stringify({url: source.url, title: document.title, shown, names}));
