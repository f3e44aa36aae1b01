// Search on pages from the file system: browsers start no worker there, so its script runs in a
// hidden frame, which passes messages on.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.document.open();
      inside.answer = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      this.loaded = new Promise((resolve) => { inside.ready = resolve; });
      inside.document.write(
        "<!doctype html><script>postMessage = answer</scr" + "ipt>" +
        `<script src="${url}" onload="ready()"></scr` + "ipt>"
      );
      inside.document.close();
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
