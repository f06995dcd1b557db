// The frame of the page: the session, the navigation, and pages that are read again while they are visible.

import { announce, empty, h } from "./dom.js";
import { Failure, post, read } from "./net.js";
import { PAGES } from "./pages.js";

const APPROVALS_MS = 5000;
const main = document.getElementById("main");
const state = { known: false, allow_input: false };
let current = null;
let first = true;

function parseRoute() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map((each) => {
    try {
      return decodeURIComponent(each);
    } catch {
      return "";
    }
  });
  return { page: PAGES.find((each) => each.id === name) || PAGES[0], rest };
}

function buildNavigation() {
  const items = PAGES.map((page) => h("li", {}, h("a", { href: `#/${page.id}`, id: `nav-${page.id}` }, page.name)));
  document.getElementById("nav").replaceChildren(...items);
  document.getElementById("tools").replaceChildren(
    h("button", { type: "button", click: createLink }, "New link"),
    h("button", { type: "button", click: endSession }, "Sign out"),
  );
}

function markNavigation(page) {
  for (const each of PAGES) {
    const link = document.getElementById(`nav-${each.id}`);
    if (each === page) {
      link.setAttribute("aria-current", "page");
      const strip = link.closest("nav");
      if (link.offsetLeft < strip.scrollLeft || link.offsetLeft + link.offsetWidth > strip.scrollLeft + strip.clientWidth) {
        strip.scrollLeft = Math.max(0, link.offsetLeft - 40);
      }
    } else link.removeAttribute("aria-current");
  }
}

async function createLink() {
  try {
    const { fragment } = await post("/api/link");
    const address = `${location.origin}/${fragment}`;
    const field = h("p", {}, h("code", { id: "new-link" }, address));
    const dialog = h(
      "dialog",
      { "aria-labelledby": "link-title", close: () => dialog.remove() },
      h("h2", { id: "link-title" }, "A link for another browser"),
      h("p", {}, "It opens one session within ten minutes. Who has it can do what you can do here."),
      field,
      h("div", { class: "actions" }, h("button", { type: "button", class: "main", click: () => dialog.close() }, "Done")),
    );
    document.body.append(dialog);
    dialog.showModal();
  } catch (error) {
    announce(error.message);
  }
}

async function endSession() {
  try {
    await post("/api/session/end");
  } catch (error) {
    if (error.status !== 401) {
      announce(`You are still signed in: ${error.message}`);
      return;
    }
  }
  showSignIn("You are signed out.");
}

function showSignIn(reason) {
  leave();
  document.getElementById("nav").replaceChildren();
  document.getElementById("tools").replaceChildren();
  document.title = "Sign in – hermes-exec";
  const field = h("input", { type: "password", id: "secret", autocomplete: "off" });
  const submit = async (event) => {
    event.preventDefault();
    await openSession(field.value.replace(/^.*#link=/, "").trim());
  };
  const head = h("h1", { tabindex: "-1" }, "Open a session");
  main.replaceChildren(
    h("div", { class: "head" }, head, h("p", { class: "lead" }, reason)),
    h(
      "form",
      { class: "card", submit },
      h("p", {}, "Start ", h("code", {}, "hermes-exec web"), " again and open its link, or enter the link or the token here."),
      h("p", { class: "actions" }, h("label", { for: "secret" }, "Link or token"), field, h("button", { type: "submit", class: "main" }, "Open")),
    ),
  );
  head.focus({ preventScroll: true });
}

async function openSession(secret) {
  try {
    await post("/api/session", { secret });
    await start();
  } catch (error) {
    showSignIn(error.message);
  }
}

function leave() {
  if (!current) return;
  current.stopped = true;
  window.clearTimeout(current.timer);
  current.controller.abort();
  current.dispose?.();
  current = null;
}

function show() {
  leave();
  const { page, rest } = parseRoute();
  const view = { page, rest, stopped: false, controller: new AbortController(), seen: "", state };
  current = view;
  markNavigation(page);
  document.title = `${page.name} – hermes-exec`;
  const title = h("h1", { tabindex: "-1", id: "title" }, page.name);
  const body = h("div", { class: "list", id: "body", "aria-busy": "true" }, h("p", { class: "lead" }, "Loading…"));
  main.replaceChildren(h("div", { class: "head" }, title, h("p", { class: "lead" }, page.lead)), body);
  view.body = body;
  view.refresh = () => refresh(view);
  view.expire = () => showSignIn("The session has ended.");
  if (!first) title.focus({ preventScroll: true });
  first = false;
  window.scrollTo(0, 0);
  if (page.mount?.(view)) return;
  refresh(view);
}

async function refresh(view) {
  window.clearTimeout(view.timer);
  try {
    const data = await read(view.page.path(view.rest, view), view.controller.signal);
    if (view.stopped) return;
    setOffline("");
    const seen = JSON.stringify(data);
    if (seen !== view.seen || view.stale) {
      view.seen = seen;
      view.stale = false;
      replace(view.body, view.page.render(data, view));
    }
  } catch (error) {
    if (view.stopped || error.name === "AbortError") return;
    if (error.status === 401) {
      view.expire();
      return;
    }
    if (error.status === 0) setOffline(error.message);
    else replace(view.body, [h("p", { class: "notice bad" }, error.message)]);
    if (!(error instanceof Failure)) throw error;
  } finally {
    view.body.setAttribute("aria-busy", "false");
    if (!view.stopped) view.timer = window.setTimeout(() => tick(view), view.page.every);
  }
}

function tick(view) {
  if (document.visibilityState === "visible") refresh(view);
  else view.timer = window.setTimeout(() => tick(view), 1000);
}

let offline = "";
function setOffline(message) {
  if (message !== offline) announce(message ? `${message} Trying again…` : "Connected again.");
  offline = message;
}

// New content takes the place of the old one; the focus, open details and scroll positions stay where they were.
function replace(body, children) {
  const focused = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const open = new Set([...body.querySelectorAll("details[open][data-key]")].map((each) => each.dataset.key));
  const top = window.scrollY;
  body.replaceChildren(...children);
  for (const each of body.querySelectorAll("details[data-key]")) if (open.has(each.dataset.key)) each.open = true;
  if (focused) [...body.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus({ preventScroll: true });
  window.scrollTo(0, top);
}

let known = null;
let watch = 0;
let round = null;
async function watchApprovals() {
  window.clearTimeout(watch);
  const mine = {}; // a new session begins another round
  round = mine;
  try {
    const found = await read("/api/approvals");
    const count = found.runs.length + found.jobs.length + found.chats.filter((each) => each.is_own).length;
    const link = document.getElementById("nav-approvals");
    if (link) {
      link.replaceChildren("Approvals", ...(count ? [h("span", { class: "count", "aria-label": `${count} waiting` , role: "img"}, String(count))] : []));
      if (known !== null && count > known) announce("A question waits for your approval.");
      known = count;
    }
  } catch (error) {
    if (error.status === 401) return; // the next session begins again
  }
  if (round === mine) watch = window.setTimeout(watchApprovals, APPROVALS_MS);
}

async function start() {
  const found = read("/api/state");
  buildNavigation();
  window.onhashchange = show;
  show();
  Object.assign(state, await found, { known: true });
  if (current?.page.mount) current.page.mount(current);
  watchApprovals();
}

async function begin() {
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  const link = /^#link=([\w-]{20,100})$/.exec(location.hash);
  if (link) {
    history.replaceState(null, "", "/#/terminals"); // the secret stays in no history
    await openSession(link[1]);
    return;
  }
  try {
    await start();
  } catch (error) {
    if (error.status === 401) showSignIn("This browser has no session.");
    else main.replaceChildren(empty("The server does not answer", error.message));
  }
}

begin();
