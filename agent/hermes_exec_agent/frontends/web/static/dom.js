// Builds the page. Every text that comes from elsewhere becomes a text node: nothing here reads markup.

const ATTRIBUTES = new Set([
  "aria-current", "aria-label", "aria-labelledby", "aria-describedby", "aria-expanded", "aria-live", "aria-busy", "class",
  "data-key", "data-label", "data-state", "datetime", "dir", "for", "href", "id", "name", "open", "role", "scope",
  "tabindex", "title", "type", "value", "autocomplete", "disabled", "checked",
]);

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "href" && !String(value).startsWith("#/")) throw new Error("only links of this page");
    else if (ATTRIBUTES.has(name)) element.setAttribute(name, value === true ? "" : String(value));
    else throw new Error(`no attribute ${name}`);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

// Text of a person, a model, a tool or a file: isolated, so that its direction changes nothing around it.
export function text(value, properties = {}) {
  return h("span", { dir: "auto", class: "foreign", ...properties }, String(value ?? ""));
}

export function block(value, properties = {}) {
  return h("pre", { dir: "auto", class: "foreign block", ...properties }, String(value ?? ""));
}

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function moment(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return h("span", {}, "–");
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return h("span", {}, "–");
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, moments.format(date));
}

export function duration(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return rest;
}

export function size(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  let at = 0;
  let value = bytes || 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

export function dollars(value) {
  if (typeof value !== "number") return "–";
  return `$${value.toFixed(value && Math.abs(value) < 0.01 ? 6 : 2)}`;
}

const GOOD = new Set(["running", "accepted", "answered", "sent", "succeeded", "active", "ready", "ok", "success", "done", "pinned", "online", "connected"]);
const BAD = new Set(["failed", "refused", "unknown", "quarantined", "missed", "killed", "lost", "down", "error", "timeout"]);
const WAIT = new Set(["waiting", "pending", "sending", "queued", "paused", "claimed", "connecting"]);

export function badge(state, label = state) {
  const word = String(state);
  const kind = GOOD.has(word) ? "good" : BAD.has(word) ? "bad" : WAIT.has(word) ? "wait" : "plain";
  return h("span", { class: "badge", "data-state": kind }, text(label));
}

// A table that becomes cards on a narrow screen; roles keep it a table for screen readers there.
export function table(caption, heads, rows) {
  const body = rows.map((cells) =>
    h("tr", { role: "row" }, cells.map((cell, at) => h("td", { role: "cell", "data-label": heads[at] }, cell))),
  );
  const head = h("tr", { role: "row" }, heads.map((each) => h("th", { role: "columnheader", scope: "col" }, each)));
  return h(
    "table",
    { role: "table" },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, head),
    h("tbody", { role: "rowgroup" }, body),
  );
}

export function empty(title, hint) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, hint));
}

export function code(value) {
  return h("code", {}, value);
}

export function announce(message) {
  const live = document.getElementById("live");
  live.textContent = "";
  window.setTimeout(() => {
    live.textContent = message;
  }, 50);
  window.clearTimeout(announce.timer);
  announce.timer = window.setTimeout(() => {
    live.textContent = "";
  }, 8000);
}

// Asks before something that cannot be undone; resolves to true or false.
export function ask(title, body, action) {
  return new Promise((resolve) => {
    const end = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const dialog = h(
      "dialog",
      { "aria-labelledby": "ask-title", cancel: (event) => { event.preventDefault(); end(false); } },
      h("h2", { id: "ask-title" }, title),
      h("p", {}, body),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", click: () => end(false) }, "Cancel"),
        h("button", { type: "button", class: "danger", click: () => end(true) }, action),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
