/** The KV replay: a trace from the server's ring or from a file, and everything that shows it. */

import { setText } from "../dom.js";
import { Comparison } from "./compare.js";
import { savePerfetto, savePicture } from "./exports.js";
import { requestOfTrace } from "./find_request.js";
import { LiveSource } from "./live_source.js";
import { Loader } from "./load.js";
import { Palette } from "./palette.js";
import { placeIn, readPlace } from "./place_in_url.js";
import { Player } from "./player.js";
import { Session } from "./session.js";
import { Status } from "./status.js";
import { TraceError } from "./trace_error.js";
import { Transport } from "./transport.js";
import { Views } from "./views.js";

const URL_PAUSE_MS = 250;

export function create(panel, page) {
  return new ReplayTab(panel, page);
}

class ReplayTab {
  constructor(panel, page) {
    this._panel = panel;
    this._page = page;
    this._palette = new Palette(panel);
    this._status = new Status(panel);
    this._loader = new Loader();
    this._live = new LiveSource(this._loader);
    this._player = new Player();
    this._announcer = panel.querySelector("[data-part=announce]");
    this._transport = new Transport(panel, this._player, (text) => setText(this._announcer, text));
    this._views = new Views(panel, this._palette);
    this._comparison = new Comparison(panel, this._palette);
    this._session = null;
    this._source = ""; // "live", "file", "" before there is any
    this._isFollowing = false;
    this._isOwnMove = false; // a move of the cursor that the reader didn't make
    this._lengthWhenPaused = 0;
    this._liveState = { state: "", message: "" };
    this._urlTimer = 0;
    this._isShown = false;
    this._wanted = null; // a place to go to once the trace is there
    this._askedLife = ""; // engine process that a link asked for
    this._written = null; // parameters that this tab put into the address itself
    this._fileName = "";
    this._listen();
  }

  // --- what the page calls ---

  async show(params) {
    const wasShown = this._isShown;
    this._isShown = true;
    const place = readPlace(params);
    const isElsewhere = this._session === null || params.toString() !== this._written;
    if (isElsewhere) this._wanted = place;
    if (place.axis) this._useAxis(place.axis);
    if (this._source === "" || (isElsewhere && this._isOfServer(place))) this._startLive(place.life);
    else if (this._source === "live" && !wasShown && !this._live.isOn) this._resumeLive();
    else if (isElsewhere) await this._goToWanted();
    this._views.due();
  }

  hide() {
    this._isShown = false;
    this._player.pause();
    this._live.stop();
  }

  key(event) {
    if (this._panel.querySelector("dialog[open]")) return;
    const isHandled = event.key === "l" || event.key === "L" ? this._toggleFollowing() : this._transport.key(event);
    if (isHandled) event.preventDefault();
  }

  // --- sources ---

  /** Whether a place is one that the server's ring must be read for, now: what is open may not have it. */
  _isOfServer({ traceId, requestId, life }) {
    return traceId !== "" || requestId !== "" || (life !== "" && life !== this._session?.trace.header.life);
  }

  _resumeLive() {
    if (this._live.trace) this._live.follow();
    else this._live.start();
  }

  _startLive(life = "") {
    this._askedLife = life;
    this._source = "live";
    this._isFollowing = true;
    this._status.fail("");
    this._comparison.end();
    this._showStatus();
    this._live.start({ life });
  }

  /** Open one file, or two side by side. */
  async _openFiles(files) {
    const [first, second] = files;
    if (!first) return;
    const trace = await this._load(first);
    if (!trace) return;
    this._live.stop();
    this._source = "file";
    this._isFollowing = false;
    this._fileName = first.name;
    this._open(trace);
    if (second) await this._compareWith(second);
  }

  async _compareWith(file) {
    const trace = file && (await this._load(file));
    if (trace) {
      this._isFollowing = false;
      this._comparison.start(this._session, trace);
      this._showStatus();
    }
  }

  async _load(file) {
    this._status.fail("");
    setText(this._announcer, `Opening ${file.name}`);
    try {
      return await this._loader.load({ blob: file }, (numEvents) => setText(this._announcer, `${numEvents.toLocaleString("en-US")} events read`));
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this._status.fail(`${file.name}: ${error.message}`);
      return null;
    }
  }

  _open(trace) {
    this._comparison.end();
    const axis = this._panel.querySelector("#replay-axis").value;
    const session = (this._session = new Session(trace, { axis }));
    this._panel.querySelector("[data-part=empty]").hidden = true;
    this._panel.querySelector("[data-part=work]").hidden = false;
    this._views.show(session);
    this._transport.show(session);
    if (this._isFollowing) this._quietly(() => session.seek(trace.length - 1));
    for (const name of ["cursor", "view"]) session.addEventListener(name, () => this._session === session && this._moved());
    this._showStatus();
    this._goToWanted();
  }

  // --- the place ---

  /** Go to where the address wants to be, as far as this trace has it. */
  async _goToWanted() {
    const place = this._wanted;
    const session = this._session;
    this._wanted = null;
    if (!place || !session) return;
    let { requestId } = place;
    if (place.traceId) {
      requestId = await requestOfTrace(place.traceId);
      if (!requestId) return this._status.fail(`The server doesn’t know trace ${place.traceId} any more.`);
    }
    if (requestId) return this._goToRequest(requestId);
    if (place.seq === null) return undefined;
    const last = session.trace.seqOf(session.trace.length - 1);
    if (place.seq < session.trace.firstSeq || place.seq > last) this._status.fail(`Event ${place.seq} is not in this trace, which holds ${session.trace.firstSeq} to ${last}.`);
    return session.seek(session.trace.indexOfSeq(place.seq));
  }

  _goToRequest(requestId) {
    const session = this._session;
    const request = session.trace.findRequest(requestId);
    const i = request < 0 ? -1 : session.firstStepOf(request);
    if (i < 0) return this._status.fail(`Request ${requestId} is not in this trace: the ring holds the newest events only.`);
    session.selection = { choice: session.trace.choiceOf(requestId, 0) };
    session.focus();
    return session.seek(i);
  }

  /** The reader went somewhere: the picture stands still, and the address says where. */
  _moved() {
    if (this._isOwnMove) return;
    if (this._isFollowing) {
      this._isFollowing = false;
      this._lengthWhenPaused = this._session.trace.length;
      this._showStatus();
    }
    clearTimeout(this._urlTimer);
    this._urlTimer = setTimeout(() => {
      const params = placeIn(this._session);
      this._written = params.toString();
      this._page.setParams("replay", params);
    }, URL_PAUSE_MS);
  }

  _quietly(move) {
    this._isOwnMove = true;
    move();
    this._isOwnMove = false;
  }

  _useAxis(name) {
    this._panel.querySelector("#replay-axis").value = name;
    if (this._session) this._quietly(() => this._session.useAxis(name));
  }

  // --- live ---

  _toggleFollowing() {
    if (this._source !== "live" || !this._session) return false;
    if (this._isFollowing) this._moved();
    else {
      this._isFollowing = true;
      this._comparison.end();
      if (this._live.trace !== this._session.trace) this._live.start();
      else if (!this._live.isOn) this._live.start();
      else this._grow();
      this._showStatus();
    }
    return true;
  }

  _grow() {
    if (!this._session || this._live.trace !== this._session.trace) return;
    this._quietly(() => this._session.grow({ follow: this._isFollowing }));
    this._showStatus();
  }

  _lost() {
    if (this._isFollowing && this._isShown) this._live.start();
    else this._showStatus();
  }

  /** The engine process that a link names is gone: show the one that is there. */
  _forgetLife() {
    this._wanted = null;
    this._startLive();
    this._status.fail("The engine was restarted since that link was made; its events are not held any more.");
  }

  // --- words ---

  _showStatus() {
    const trace = this._session?.trace ?? null;
    const numNew = trace ? trace.length - this._lengthWhenPaused : 0;
    const { _source: source, _isFollowing: isFollowing, _liveState: live, _fileName: fileName } = this;
    this._status.show({ source, isFollowing, live, numNew, trace, fileName });
  }

  // --- wiring ---

  _listen() {
    const panel = this._panel;
    const on = (selector, type, listener) => panel.querySelector(selector).addEventListener(type, listener);
    this._live.addEventListener("trace", (event) => (this._isFollowing || !this._session ? this._open(event.detail) : this._showStatus()));
    this._live.addEventListener("events", () => this._grow());
    this._live.addEventListener("lost", () => this._lost());
    this._live.addEventListener("state", (event) => {
      this._liveState = event.detail;
      if (event.detail.state === "failed" && this._askedLife) this._forgetLife();
      this._showStatus();
    });
    on("#replay-follow", "click", () => this._toggleFollowing());
    on("#replay-live", "click", () => this._startLive());
    for (const [selector, open] of [["#replay-file", (files) => this._openFiles(files)], ["#replay-file-b", ([file]) => this._compareWith(file)]]) {
      on(selector, "change", (event) => {
        open([...event.target.files]);
        event.target.value = "";
      });
    }
    on("#replay-png", "click", () => this._session && savePicture(this._session, [...this._views.canvases, ...this._comparison.canvases], this._palette));
    on("#replay-perfetto", "click", () => this._session && savePerfetto(this._session.trace));
    on("#replay-tables", "click", (event) => this._toggleTables(event.currentTarget));
    on("#replay-close-help", "click", () => panel.querySelector("#replay-help").close());
    addEventListener("dragover", (event) => this._drag(event, true));
    addEventListener("dragleave", (event) => this._drag(event, false));
    addEventListener("drop", (event) => this._drop(event));
  }

  _toggleTables(button) {
    const tables = this._panel.querySelector("[data-part=tables]");
    tables.hidden = !tables.hidden;
    button.setAttribute("aria-pressed", String(!tables.hidden));
    this._views.tables.due();
  }

  _drag(event, isOver) {
    if (!this._isShown || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    this._panel.classList.toggle("dropping", isOver);
  }

  _drop(event) {
    if (!this._isShown || !event.dataTransfer?.files.length) return;
    event.preventDefault();
    this._panel.classList.remove("dropping");
    this._openFiles([...event.dataTransfer.files]);
  }
}
