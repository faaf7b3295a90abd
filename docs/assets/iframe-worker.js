/* Search in pages that were opened as files: a browser starts no worker there, so an invisible frame
   stands in for it. Where pages come from a server, this does nothing. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><body></body>");
      inside.document.close();
      const load = (source) => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = source;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.body.appendChild(script);
      });
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.ready = load(new URL(url, document.baseURI).href);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(
        new MessageEvent("message", { data: structuredClone(data) })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
