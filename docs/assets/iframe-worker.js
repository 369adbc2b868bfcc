/* Browsers start no worker from a file. In pages that are opened as files, this class takes the place of
   `Worker` and runs the script in a hidden frame, so that the search works without a server. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.receive(structuredClone(data));
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = () => {
        this.isLoaded = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.onerror?.(new Event("error"));
      this.frame.contentDocument.head.appendChild(script);
    }

    receive(data) {
      const event = new MessageEvent("message", { data });
      this.onmessage?.(event);
      this.dispatchEvent(event);
    }

    postMessage(data) {
      if (!this.isLoaded) return void this.waiting.push(data);
      const inside = this.frame.contentWindow;
      const event = new inside.MessageEvent("message", { data: structuredClone(data) });
      setTimeout(() => inside.dispatchEvent(event));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
