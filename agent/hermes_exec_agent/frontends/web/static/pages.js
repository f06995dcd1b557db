// The pages with terminals, conversations, skills and approvals.

import { announce, ask, badge, block, code, dollars, duration, empty, h, moment, size, text } from "./dom.js";
import { audit, costs, cron, outbox } from "./lists.js";
import { post } from "./net.js";
import { TerminalView } from "./terminal.js";

const escapePart = encodeURIComponent;

const terminals = {
  id: "terminals", name: "Terminals", every: 2000,
  lead: "Jobs and kept shells of all targets, as they run.",
  path: () => "/api/terminals",
  render({ places, waiting }, view) {
    const notes = waiting.map((each) => h("p", { class: "notice" }, text(each.target),
      each.failed ? ": no answer; it is tried again." : ": connecting…"));
    if (!places.length && !waiting.length) {
      return [empty("Nothing runs", ["Start a job with ", code("hermes-exec run --detach -- COMMAND"), " or a shell with ", code("hermes-exec shell --keep")])];
    }
    const rows = places.map((each) => h("li", { class: "card" },
      h("div", { class: "row" },
        h("div", {}, h("h3", {}, text(each.name && each.kind === "job" ? each.name : each.job)),
          text(each.command, { class: "foreign command", title: each.command })),
        describeState(each),
        (each.kind === "job" || each.state !== "ended") && h("a", {
          class: "button main", "data-key": `open-${each.job}`, "aria-label": `Open ${each.job}`,
          href: `#/terminals/${escapePart(each.guest)}/${each.kind}/${escapePart(each.job)}`,
        }, "Open")),
      h("p", { class: "meta" }, h("span", {}, each.kind === "pty" ? "shell" : "job"), text(each.target), h("span", {}, "since ", moment(each.started)),
        each.kind === "job" && h("span", {}, duration(each.duration_s)),
        each.kind === "job" && h("span", {}, size(each.stdout_bytes + each.stderr_bytes)),
        each.kind === "pty" && h("span", {}, `${each.views} attached`), each.note && text(each.note))));
    return [...notes, h("ul", { class: "list", "aria-label": "Jobs and shells" }, rows)];
  },
  mount(view) {
    const [guest, kind, job] = view.rest;
    if (!guest || !job) return false;
    if (view.state.known && !view.dispose) showTerminal(view, guest, kind, job);
    return true;
  },
};

function describeSignal(result) {
  if (result.timed_out) return "time limit";
  return result.signal ? `signal ${result.signal}` : "ended";
}

function describeState(each) {
  if (each.state !== "ended" || !each.result) return badge(each.state);
  const code = each.result.exit_code;
  if (code === 0) return badge("ok", "exit code 0");
  return badge("failed", typeof code === "number" ? `exit code ${code}` : describeSignal(each.result));
}

function showTerminal(view, guest, kind, job) {
  const status = h("span", { id: "status", role: "status" }, badge("connecting"));
  const note = h("p", { class: "lead", id: "terminal-note" }, "");
  const report = (state, message) => {
    if (state === "note") {
      note.replaceChildren(`The first ${size(message)} are not shown. `, h("button", { type: "button", click: restart }, "Show from the start"));
      return;
    }
    if (state === "expired") {
      view.expire();
      return;
    }
    if (state === "refused") {
      announce(message);
      return;
    }
    status.replaceChildren(badge(state === "live" ? "running" : state, state === "live" ? "Live" : message || state));
  };
  let terminal;
  const open = (fromStart) => {
    terminal = new TerminalView({ guest, kind, job, allowInput: view.state.allow_input, report, dim: `Terminal of ${job}` });
    holder.replaceChildren(terminal.pane);
    terminal.open(fromStart).then(() => terminal.setReader(reader.checked));
  };
  const restart = () => {
    terminal.close();
    note.replaceChildren();
    if (typing) typing.checked = false;
    open(true);
  };
  const reader = h("input", { type: "checkbox", id: "reader", change: () => terminal.setReader(reader.checked) });
  const typing = view.state.allow_input && h("input", { type: "checkbox", id: "typing", change: () => terminal.setTyping(typing.checked) });
  const end = async () => {
    if (!(await ask(`End ${job}?`, "All its processes are ended.", "End it"))) return;
    try {
      await post("/api/terminals/end", { guest, kind, job });
      announce(`${job} has ended.`);
    } catch (error) {
      announce(error.message);
    }
  };
  const holder = h("div", {});
  document.getElementById("title").replaceChildren(text(job));
  document.title = `${job} – hermes-exec`;
  view.body.setAttribute("aria-busy", "false");
  view.body.replaceChildren(
    h("div", { class: "row" },
      h("div", { class: "meta" }, h("a", { href: "#/terminals", class: "button", id: "leave" }, "All terminals"), status),
      h("label", { class: "check" }, reader, "Screen reader"),
      typing && h("label", { class: "check" }, typing, "Type into it"),
      view.state.allow_input && h("button", { type: "button", class: "danger", click: end }, "End it")),
    note,
    holder,
    h("p", { class: "meta" }, view.state.allow_input
      ? "Shift+Escape leaves the terminal while you type."
      : "This page only shows it: hermes-exec web --allow-input lets it type."));
  view.dispose = () => terminal.close();
  open(false);
}

const KINDS = {
  user: "Person", assistant: "Model", call: "Call", result: "Result", approval: "Approval", warning: "Warning", steered: "Person, meanwhile",
  failed: "Failed", ended: "Program", started: "Started", titled: "Title",
};
const LONG = 600;
const QUIET = new Set(["started", "compacted", "files", "skill", "spent", "rewound", "call", "titled"]);

const conversations = {
  id: "conversations", name: "Conversations", every: 4000,
  lead: "What was asked, which tools were called, and where.",
  path: ([id], view) => id
    ? `/api/conversations/${escapePart(id)}?before=${view.before || 0}`
    : `/api/conversations?before=${escapePart(view.before || "")}`,
  render(data, view) {
    if (view.rest[0]) return showConversation(data, view);
    if (!data.items.length) {
      return [view.before
        ? empty("No earlier conversations", "These were all.")
        : empty("There is no conversation yet", ["Begin one with ", code("hermes-exec chat")])];
    }
    const rows = data.items.map((each) => h("li", { class: "card" },
      h("h3", {}, h("a", { href: `#/conversations/${escapePart(each.id)}`, "data-key": each.id }, text(each.title || "Without a title"))),
      h("p", { class: "meta" }, moment(each.last), text(each.target || "no target"), text(each.model),
        h("span", {}, `${each.turns} ${each.turns === 1 ? "request" : "requests"}`),
        each.parent && h("span", {}, "delegated"), each.scripted && h("span", {}, "scripted"))));
    const go = (before) => () => {
      view.before = before;
      view.stale = true;
      view.refresh();
      announce("Loading…");
    };
    return [
      h("ul", { class: "list", "aria-label": "Conversations" }, rows),
      h("div", { class: "actions" },
        view.before && h("button", { type: "button", click: go(""), "data-key": "newest" }, "Newest"),
        data.more && h("button", { type: "button", click: go(data.items.at(-1).id), "data-key": "earlier" }, "Earlier")),
    ];
  },
};

function showConversation(data, view) {
  document.getElementById("title").replaceChildren(text(data.title || "Without a title"));
  const earlier = () => {
    view.before = data.events[0].number;
    view.stale = true;
    view.refresh();
  };
  const latest = () => {
    view.before = 0;
    view.stale = true;
    view.refresh();
  };
  return [
    h("div", { class: "row" },
      h("p", { class: "meta" }, h("a", { href: "#/conversations" }, "All conversations"), text(data.target || "no target"), text(data.person || "owner"), h("code", {}, data.id)),
      h("div", { class: "actions" },
        data.earlier && h("button", { type: "button", click: earlier, "data-key": "earlier" }, "Earlier"),
        view.before > 0 && h("button", { type: "button", click: latest, "data-key": "latest" }, "Latest"))),
    h("ol", { class: "list", "aria-label": "Events" }, data.events.map(showEvent)),
  ];
}

function showEvent(event) {
  const label = KINDS[event.kind] || event.kind;
  const long = event.kind === "result" || QUIET.has(event.kind);
  return h("li", { class: "event", "data-state": event.kind },
    h("p", { class: "meta" }, h("span", { class: "who" }, text(label)), event.note && text(event.note), moment(event.at),
      event.target && text(event.target), event.source && text(event.source), typeof event.seconds === "number" && h("span", {}, duration(event.seconds)),
      typeof event.cost === "number" && h("span", {}, dollars(event.cost))),
    event.text && (long
      ? h("details", { "data-key": `event-${event.number}` }, h("summary", {}, "Content"), block(event.text))
      : text(event.text, { class: "foreign said" })),
    (event.calls || []).map((each, at) => (each.length > LONG
      ? h("details", { "data-key": `event-${event.number}-${at}` }, h("summary", {}, "Call"), block(each))
      : block(each))));
}

const skills = {
  id: "skills", name: "Skills", every: 4000,
  lead: "Registered skills, and the proofs that they do what they say.",
  path: ([name]) => (name ? `/api/skills/${escapePart(name)}` : "/api/skills"),
  render(data, view) {
    if (view.rest[0]) return showSkill(data);
    if (!data.items.length) {
      return [empty("There is no skill yet", data.why ? data.why : ["Add one with ", code("hermes-exec skill add DIR")])];
    }
    return [h("ul", { class: "list", "aria-label": "Skills" }, data.items.map((each) => showSkillRow(each, data.proofs[each.name], view)))];
  },
};

function showSkillRow(each, proof, view) {
  const prove = async () => {
    try {
      await post(`/api/skills/${escapePart(each.name)}/prove`);
      announce(`The gate proves ${each.name} again.`);
    } catch (error) {
      announce(error.message);
    }
    view.refresh();
  };
  return h("li", { class: "card" },
    h("div", { class: "row" },
      h("div", {}, h("h3", {}, h("a", { href: `#/skills/${escapePart(each.name)}`, "data-key": each.name }, text(each.name))), h("p", {}, text(each.summary))),
      badge(each.state),
      each.rights.includes("call") && each.state !== "archived" && h("button", {
        type: "button", click: prove, "data-key": `prove-${each.name}`, "aria-label": `Prove ${each.name} again`, disabled: proof?.state === "running",
      }, "Prove again")),
    h("p", { class: "meta" }, h("span", {}, `version ${each.version}`), text(each.level ? `evidence: ${each.level}` : "no evidence"),
      text(each.rights.join(", ")), text(each.origin), each.material && h("span", {}, each.trusted ? "trusted" : "not trusted"), moment(each.registered)),
    proof && h("p", { class: "meta" }, badge(proof.state), text(proof.text), moment(proof.at)));
}

function showSkill(data) {
  document.getElementById("title").replaceChildren(text(data.name));
  const seen = data.evidence.evidence || {};
  const proof = data.evidence.proof || {};
  const attempts = proof.attempts || [];
  const held = attempts.filter((each) => each.verdict === "held").length;
  const facts = [
    ["About", text(data.summary)], ["State", h("span", {}, badge(data.state), " ", text(data.quarantine))], ["Version", String(data.number)],
    ["Rights", text(data.rights.join(", "))], ["Evidence", text(data.level || "none: nothing of it was run as a function")],
    ["Own tests", seen.tests === undefined ? "–" : `${seen.tests}, which noticed ${seen.killed} of ${seen.mutants} mutants`],
    ["Sandbox", attempts.length ? h("span", {}, text(proof.place), `: ${held} of ${attempts.length} attempts to break out were contained`) : "no proof is recorded"],
    ["Policy", text(data.policy || "–")], ["Kernel", text(data.kernel || "–")], ["Interpreter", text(data.interpreter || "–")],
    ["Origin", text(data.origin)], ["Runs", `${data.runs.runs}, of which ${data.runs.failures} failed`], ["SHA-256", h("code", {}, data.digest)],
  ];
  const findings = data.evidence.findings || [];
  return [
    h("p", { class: "meta" }, h("a", { href: "#/skills" }, "All skills")),
    h("section", { class: "card", "aria-labelledby": "facts" }, h("h2", { id: "facts" }, "Record"),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
    h("section", { class: "card", "aria-labelledby": "findings" }, h("h2", { id: "findings" }, "Findings of the gate"),
      findings.length ? h("ul", {}, findings.map((each) => h("li", {}, text(`${each.code} ${each.path || ""} ${each.operator || ""}`)))) : h("p", {}, "None.")),
    h("section", { class: "card", "aria-labelledby": "files" }, h("h2", { id: "files" }, "Files"),
      h("ul", {}, data.files.map((each) => h("li", {}, text(each.path, { class: "foreign mono" }))))),
    h("section", { class: "card", "aria-labelledby": "history" }, h("h2", { id: "history" }, "History"),
      h("ol", {}, data.history.map((each) => h("li", {}, moment(each.at), " ", text(each.kind), ` version ${each.version} `, text(each.why))))),
  ];
}

const STEADY_MS = 700;

const approvals = {
  id: "approvals", name: "Approvals", every: 2500,
  lead: "Questions that wait for you. Each is answered once.",
  path: () => "/api/approvals",
  render(data, view) {
    const keys = JSON.stringify([data.runs, data.chats, data.jobs].map((list) => list.map((each) => each.approval_id || each.id)));
    if (view.keys && view.keys !== keys && view.keys !== "[[],[],[]]") view.moved = performance.now();
    view.keys = keys;
    const answer = (body, what) => async () => {
      if (performance.now() - view.moved < STEADY_MS) { // the button came under the pointer just now
        announce("The questions have moved. Look again, and then answer.");
        return;
      }
      try {
        await post("/api/approvals", body);
        announce(what);
      } catch (error) {
        announce(error.message);
      }
      view.stale = true;
      view.refresh();
      document.getElementById("title")?.focus({ preventScroll: true });
    };
    const buttons = (key, body, subject) => h("div", { class: "actions" },
      h("button", { type: "button", class: "main", "data-key": `allow-${key}`, "aria-label": `Allow ${subject}`, click: answer({ ...body, allow: true }, "Allowed.") }, "Allow once"),
      h("button", { type: "button", class: "danger", "data-key": `deny-${key}`, "aria-label": `Deny ${subject}`, click: answer({ ...body, allow: false }, "Denied.") }, "Deny"));
    view.fields ??= new Map(); // what is being typed stays while the page is drawn again
    const reply = (each) => {
      if (!view.fields.has(each.id)) view.fields.set(each.id, h("textarea", { "data-key": `reply-${each.id}`, "aria-label": "Your answer" }));
      const field = view.fields.get(each.id);
      const send = (value) => answer({ question: each.id, answer: value() }, "Answered.")();
      return [
        each.choices.length > 0 && h("div", { class: "actions" }, each.choices.map((choice, at) =>
          h("button", { type: "button", "data-key": `choice-${at}-${each.id}`, click: () => send(() => choice) }, text(choice)))),
        field,
        h("div", { class: "actions" },
          h("button", { type: "button", class: "main", "data-key": `send-${each.id}`, click: () => send(() => field.value) }, "Answer")),
      ];
    };
    const runs = data.runs.map((each) => h("li", { class: "card" },
      h("h3", {}, text(each.tool)), block(each.summary),
      h("p", { class: "meta" }, "asked ", moment(each.asked_at), h("span", {}, "denied at ", moment(each.expires_at)),
        each.session_id && h("a", { href: `#/conversations/${escapePart(each.session_id)}`, "data-key": `talk-${each.approval_id}` }, "Conversation")),
      buttons(each.approval_id, { run: each.run_id, approval: each.approval_id }, each.tool)));
    const chats = data.chats.map((each) => h("li", { class: "card" },
      h("h3", {}, each.choices ? "Question" : text(each.tool)), block(each.summary),
      h("p", { class: "meta" }, text(`${each.person}, on ${each.platform}`), "asked ", moment(each.asked_at),
        h("span", {}, each.choices ? "expires at " : "denied at ", moment(each.expires_at)),
        each.conversation && h("a", { href: `#/conversations/${escapePart(each.conversation)}`, "data-key": `talk-${each.id}` }, "Conversation")),
      each.choices ? reply(each) : each.is_own
        ? buttons(each.id, { question: each.id }, each.tool)
        : h("p", { class: "notice" }, text(each.person), " alone can answer this, in the chat.")));
    const jobs = data.jobs.map((each) => h("li", { class: "card" },
      h("h3", {}, "Scheduled job ", text(each.name)),
      h("dl", {}, each.facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, text(value, { class: "foreign said" }))])),
      buttons(`job-${each.id}`, { job: each.id, revision: each.revision }, each.name)));
    const notes = [
      data.error && h("p", { class: "notice bad" }, text(data.error)),
      !data.has_server && h("p", { class: "notice" }, "Runs of hermes-exec serve are not asked about here: hermes-exec web --server http://127.0.0.1:8080"),
    ].filter(Boolean);
    if (!runs.length && !chats.length && !jobs.length) return [...notes, empty("Nothing waits for you", "Questions of runs and messengers, and proposed jobs, appear here.")];
    return [...notes, h("ul", { class: "list", "aria-label": "Questions" }, runs, chats, jobs)];
  },
};

export const PAGES = [terminals, conversations, skills, approvals, cron, outbox, audit, costs];
