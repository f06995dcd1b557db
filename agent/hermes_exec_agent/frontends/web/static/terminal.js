// A live terminal: xterm.js, a stream with offsets, and acknowledgements that hold the server back.

import { h } from "./dom.js";
import { read, socket } from "./net.js";

const SCROLLBACK = 5000;
const FIRST_MS = 300;
const LONGEST_MS = 8000;
const PASTE = 8192;
const SESSION_ENDED = 4401;

const LIGHT = {
  background: "#ffffff", foreground: "#1c2733", cursor: "#0f766e", cursorAccent: "#ffffff", selectionBackground: "#bfe7e1",
  black: "#1c2733", red: "#b42318", green: "#087443", yellow: "#8a5a00", blue: "#1d5fbf", magenta: "#8b3fa0",
  cyan: "#0b7285", white: "#5b6875", brightBlack: "#5b6875", brightRed: "#b42318", brightGreen: "#087443",
  brightYellow: "#8a5a00", brightBlue: "#1d5fbf", brightMagenta: "#8b3fa0", brightCyan: "#0b7285", brightWhite: "#1c2733",
};
const DARK = {
  background: "#0c1217", foreground: "#d9e2ea", cursor: "#5eead4", cursorAccent: "#0c1217", selectionBackground: "#27504c",
  black: "#2b3640", red: "#ff8f87", green: "#6fdca0", yellow: "#f0c674", blue: "#8ab8ff", magenta: "#dba3ef",
  cyan: "#6fd8e0", white: "#d9e2ea", brightBlack: "#8b99a6", brightRed: "#ffb0aa", brightGreen: "#97ebbd",
  brightYellow: "#ffe0a0", brightBlue: "#b3d2ff", brightMagenta: "#ecc5f8", brightCyan: "#a0ecf2", brightWhite: "#ffffff",
};

// The page allows no inline style. The library writes style elements and attributes: these become constructed sheets
// and properties, which are no markup.
function adoptStyles() {
  const create = document.createElement.bind(document);
  document.createElement = (tag, options) => (String(tag).toLowerCase() === "style" ? createSheet(create) : create(tag, options));
  HTMLElement.prototype.setAttribute = function setAttribute(name, value) {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
}

// A stand-in for a style element, whose rules are a sheet of the document until it is removed.
function createSheet(create) {
  const standIn = create("span");
  const sheet = new CSSStyleSheet();
  standIn.hidden = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(standIn, "textContent", { set: (rules) => sheet.replaceSync(rules), get: () => "" });
  standIn.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(standIn);
  };
  return standIn;
}

let library = null;
function loadLibrary() {
  if (!library) {
    adoptStyles();
    library = import("./xterm/xterm.mjs");
  }
  return library;
}

// Programs can ask a terminal questions, whose answers would be typed for the person: none is answered.
function refuseQuestions(terminal) {
  const handled = () => true;
  for (const id of [
    { final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" }, { final: "n" }, { prefix: "?", final: "n" },
    { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" }, { final: "t" },
  ]) terminal.parser.registerCsiHandler(id, handled);
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, handled);
  for (const number of [0, 1, 2, 4, 8, 10, 11, 12, 52]) terminal.parser.registerOscHandler(number, handled);
}

// A browser does not tell why a socket was refused.
async function isSignedOut() {
  try {
    await read("/api/state");
    return false;
  } catch (error) {
    return error.status === 401;
  }
}

export class TerminalView {
  constructor({ guest, kind, job, allowInput, report, dim }) {
    this.item = { guest, kind, job };
    this.allowInput = allowInput;
    this.report = report;
    this.typing = false;
    this.offset = null;
    this.run = "";
    this.waitMs = FIRST_MS;
    this.closed = false;
    this.ended = false;
    this.pane = h("div", { class: "tty", role: "region", "aria-label": dim, tabindex: "0" });
    this.scheme = window.matchMedia("(prefers-color-scheme: dark)");
    this.recolor = () => {
      if (this.terminal) this.terminal.options.theme = this.scheme.matches ? DARK : LIGHT;
    };
    this.refit = () => this.fit();
  }

  async open(fromStart = false) {
    const { Terminal } = await loadLibrary();
    if (this.closed) return;
    this.terminal = new Terminal({
      scrollback: SCROLLBACK,
      convertEol: this.item.kind === "job",
      disableStdin: true,
      fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
      fontSize: 13,
      lineHeight: 1.15,
      linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
      logLevel: "off",
      minimumContrastRatio: 4.5,
      theme: this.scheme.matches ? DARK : LIGHT,
    });
    refuseQuestions(this.terminal);
    this.terminal.open(this.pane);
    this.terminal.textarea?.setAttribute("aria-label", "Terminal input");
    this.terminal.attachCustomKeyEventHandler((event) => this.takesKey(event));
    this.terminal.onData((data) => this.type(data));
    this.scheme.addEventListener("change", this.recolor);
    window.addEventListener("resize", this.refit);
    this.fit();
    if (fromStart) this.offset = 0;
    this.connect();
  }

  // Tab and the way out stay the page's: Shift+Escape leaves, and without typing no key is taken.
  takesKey(event) {
    if (event.key === "Escape" && event.shiftKey) {
      if (event.type === "keydown") document.getElementById("leave")?.focus();
      event.preventDefault();
      return false;
    }
    return this.typing;
  }

  setTyping(on) {
    this.typing = on && this.allowInput;
    if (!this.terminal) return;
    this.terminal.options.disableStdin = !this.typing;
    this.terminal.options.cursorBlink = this.typing;
    if (this.typing) {
      this.fit();
      this.terminal.focus();
    }
  }

  setReader(on) {
    if (this.terminal) this.terminal.options.screenReaderMode = on;
  }

  fit() {
    const screen = this.pane.querySelector(".xterm-screen");
    if (!this.terminal || !screen || !screen.clientWidth) return;
    const width = screen.clientWidth / this.terminal.cols;
    const height = screen.clientHeight / this.terminal.rows;
    const rows = Math.max(6, Math.floor((this.pane.clientHeight - 16) / height));
    const fitting = Math.max(20, Math.floor((this.pane.clientWidth - 28) / width));
    const follows = this.item.kind === "job" || this.typing;
    this.terminal.resize(follows ? fitting : Math.max(80, fitting), follows ? rows : Math.max(24, rows));
    if (this.typing && this.item.kind === "pty") {
      this.send({ type: "resize", rows: this.terminal.rows, cols: this.terminal.cols });
    }
  }

  type(data) {
    if (!this.typing) return;
    const typed = this.item.kind === "job" ? data.replaceAll("\r", "\n") : data;
    for (let at = 0, end = 0; at < typed.length; at = end) {
      end = Math.min(at + PASTE, typed.length);
      if (end < typed.length && typed.codePointAt(end - 1) > 0xffff) end -= 1; // the two halves of a character stay together
      if (!this.send({ type: "input", data: typed.slice(at, end) })) {
        this.report("refused", "There is no connection: what you type is not sent.");
        return;
      }
    }
  }

  send(record) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(record));
    return true;
  }

  connect() {
    if (this.closed || this.ended) return;
    const opened = socket({ ...this.item, run: this.run, offset: this.offset === null ? "tail" : String(this.offset) });
    this.socket = opened;
    this.reason = "";
    let answered = false;
    opened.onmessage = (event) => {
      answered = true;
      if (typeof event.data === "string") this.control(JSON.parse(event.data));
      else this.output(opened, event.data);
    };
    opened.onclose = async (event) => {
      if (this.socket !== opened || this.closed || this.ended) return;
      if (event.code === SESSION_ENDED || (!answered && (await isSignedOut()))) {
        this.report("expired");
        return;
      }
      if (this.closed) return;
      this.report("waiting", `${this.reason || "Connection lost."} Trying again…`);
      this.timer = window.setTimeout(() => this.connect(), this.waitMs);
      this.waitMs = Math.min(this.waitMs * 2, LONGEST_MS);
    };
  }

  output(opened, buffer) {
    const bytes = new Uint8Array(buffer, 8);
    this.offset = Number(new DataView(buffer).getBigUint64(0));
    this.pane.dataset.offset = String(this.offset);
    this.terminal.write(bytes, () => {
      if (opened.readyState === WebSocket.OPEN) opened.send(JSON.stringify({ type: "ack", bytes: bytes.length }));
    });
  }

  control(record) {
    switch (record.type) {
      case "begin":
        if (record.replay) this.terminal.reset(); // the recent output follows, and is drawn again
        if (this.offset === null && record.offset && !record.replay) this.report("note", record.offset);
        this.run = record.run || "";
        this.waitMs = FIRST_MS;
        this.report("live", "Live");
        if (this.typing) this.fit();
        break;
      case "end":
        this.ended = true;
        this.report("ended", record.text);
        break;
      case "gone":
        this.ended = true;
        this.report("ended", "It is not there any more");
        break;
      case "refused":
        this.report("refused", record.message);
        break;
      default:
        this.reason = `${record.message}.`;
    }
  }

  close() {
    this.closed = true;
    window.clearTimeout(this.timer);
    this.scheme.removeEventListener("change", this.recolor);
    window.removeEventListener("resize", this.refit);
    this.socket?.close();
    this.terminal?.dispose();
  }
}
