// Lets the search work on pages that are opened from a folder: browsers start no Worker for file://. This one is a hidden
// frame with the two functions that Material's search calls in a Worker: postMessage and importScripts.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    window.addEventListener("message", ({ data, source }) => {
      if (source !== inside) return;
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    });
    inside.postMessage = (data) => window.dispatchEvent(new MessageEvent("message", { data, source: inside }));
    inside.importScripts = async (...urls) => {
      for (const src of urls) await FrameWorker.load(inside.document, src);
    };
    this.ready = FrameWorker.load(inside.document, url);
    this.inside = inside;
  }

  static load(page, src) {
    return new Promise((resolve, reject) => {
      const script = Object.assign(page.createElement("script"), { src, onload: resolve, onerror: reject });
      page.body.appendChild(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
