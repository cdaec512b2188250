/** The name that requests must carry: the first one that the service lists, asked for again after each restart. */
export class ServedModel extends EventTarget {
  /** @param {{fetch?: typeof fetch}} [options] */
  constructor({ fetch = (...args) => globalThis.fetch(...args) } = {}) {
    super();
    this._fetch = fetch;
    this._askedFor = "";
    this.name = "";
  }

  frame(frame) {
    const life = frame.connected && frame.stats.engine.state === "ready" ? this._life(frame.stats) : "";
    if (!life) this._askedFor = "";
    else if (life !== this._askedFor) {
      this._askedFor = life;
      this._ask();
    }
  }

  _life({ engine, t, uptime_s: uptime }) {
    return `${engine.model} ${engine.restarts} ${Math.round((t - uptime) / 5)}`;
  }

  async _ask() {
    try {
      const response = await this._fetch("api/v1/models");
      const name = (await response.json()).data[0].id;
      if (name === this.name) return;
      this.name = name;
      this.dispatchEvent(new Event("change"));
    } catch {
      this._askedFor = ""; // the next frame asks again
    }
  }
}
