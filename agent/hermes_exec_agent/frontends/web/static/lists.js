// The pages that show records: slots, messages, the audit and costs.

import { announce, badge, block, code, dollars, duration, empty, h, moment, size, table, text } from "./dom.js";
import { post } from "./net.js";

export const cron = {
  id: "cron", name: "Cron", every: 5000,
  lead: "Scheduled jobs, and what became of each slot.",
  path: () => "/api/cron",
  render({ jobs, slots, looked }) {
    if (!jobs.length && !slots.length) {
      return [empty("Nothing is scheduled", ["Add a job with ", code("hermes-exec cron add 'every 15m' 'look at the disk'")])];
    }
    const late = looked === null || Date.now() / 1000 - looked > 600;
    const deliveries = (each) => each.deliveries.map((sent) =>
      h("div", { class: "meta" }, text(sent.address), badge(sent.state), sent.error && text(sent.error)));
    return [
      late && h("p", { class: "notice" }, "No ticker looks for due jobs now: start hermes-exec cron daemon."),
      table("Jobs", ["Name", "State", "Schedule", "Next", "What"], jobs.map((job) => [
        h("div", {}, text(job.name), job.target && h("div", { class: "meta" }, text(job.target))),
        h("div", {}, badge(job.state), job.reason && h("div", { class: "meta" }, text(job.reason))),
        h("div", {}, text(job.schedule), h("div", { class: "meta" }, text(job.zone))),
        moment(job.next), text(job.what, { class: "foreign mono" }),
      ])),
      table("Slots", ["Slot", "Job", "State", "Time", "Result"], slots.map((slot) => [
        h("div", {}, moment(slot.slot), slot.count > 1 && h("div", { class: "meta" }, `${slot.count} slots, until `, moment(slot.last))),
        text(slot.name), h("div", {}, badge(slot.state), h("div", { class: "meta" }, text([slot.reason, slot.note].filter(Boolean).join("; ")))),
        slot.ended && slot.began ? duration(slot.ended - slot.began) : "–",
        h("div", {},
          slot.conversation && h("a", { href: `#/conversations/${encodeURIComponent(slot.conversation)}`, "data-key": `slot-${slot.id}-talk` }, "Conversation"),
          slot.text && h("details", { "data-key": `slot-${slot.id}` }, h("summary", {}, "Output"), block(slot.text)),
          deliveries(slot), !slot.conversation && !slot.text && !slot.deliveries.length && "–"),
      ])),
    ].filter(Boolean);
  },
};

const STATES = ["", "pending", "sending", "sent", "failed", "unknown"];

export const outbox = {
  id: "outbox", name: "Outbox", every: 5000,
  lead: "Messages of the gateway to persons. An unknown one may have arrived.",
  path: (_, view) => `/api/outbox?state=${view.filter || ""}`,
  render({ running, platforms, counts, items }, view) {
    const choose = (event) => {
      view.filter = event.target.value;
      view.stale = true;
      view.refresh();
    };
    const options = STATES.map((each) => {
      const option = h("option", { value: each }, each ? `${each} (${counts[each] || 0})` : "all");
      option.selected = each === (view.filter || "");
      return option;
    });
    const head = h("div", { class: "row" },
      h("div", { class: "meta" }, badge(running ? "running" : "stopped", running ? "gateway is running" : "gateway is stopped")),
      h("label", { class: "check" }, "State ", h("select", { change: choose, "data-key": "state" }, options)));
    const accounts = platforms.length > 0 && table("Platforms", ["Platform", "Account", "State", "Lag", "Last error"], platforms.map((each) => [
      text(each.platform), text(each.account), badge(each.state), duration(each.lag_s), text(each.error || "–"),
    ]));
    const body = items.length
      ? table("Messages", ["Changed", "To", "State", "Text"], items.map((each) => [
          moment(each.changed), h("div", {}, text(each.person || "stranger"), h("div", { class: "meta" }, text(each.platform))),
          h("div", {}, badge(each.state), each.error && h("div", { class: "meta" }, text(each.error))),
          text(each.text, { class: "foreign said" }),
        ]))
      : empty("No messages", ["Connect messengers with ", code("hermes-exec gateway run")]);
    return [head, accounts, body].filter(Boolean);
  },
};

function describeEnd(record) {
  if (!record.finished) return badge("open", "no end recorded");
  if (record.timed_out) return badge("timeout", "time limit");
  if (record.signal !== null) return badge("killed", `signal ${record.signal}`);
  if (record.exit_code === null) return h("div", {}, badge("failed"), h("div", { class: "meta" }, text(record.error)));
  return record.exit_code === 0 ? badge("ok", "exit code 0") : badge("failed", `exit code ${record.exit_code}`);
}

export const audit = {
  id: "audit", name: "Audit", every: 5000,
  lead: "Recorded commands on every target, the newest first, and reports on tasks.",
  path: (_, view) => `/api/audit?failed=${view.filter ? 1 : 0}`,
  render({ items, reports }, view) {
    const box = h("input", { type: "checkbox", id: "failed", "data-key": "failed", change: (event) => {
      view.filter = event.target.checked;
      view.stale = true;
      view.refresh();
    } });
    box.checked = Boolean(view.filter);
    const list = items.length
      ? table("Commands", ["At", "Target", "End", "Time", "Output", "Command"], items.map((each) => [
          moment(each.at), text(each.target), describeEnd(each), each.finished ? duration(each.duration_s) : "–",
          each.finished ? size(each.stdout_bytes + each.stderr_bytes) : "–", text(each.command, { class: "foreign mono" }),
        ]))
      : empty(view.filter ? "No command failed" : "No command is recorded", ["Run one with ", code("hermes-exec run --on local -- uname")]);
    const written = reports.length > 0 && h("section", { class: "list", "aria-labelledby": "reports" },
      h("h2", { id: "reports" }, "Reports on tasks"),
      [...reports].reverse().map((each) => h("details", { class: "card", "data-key": `report-${each.number}` },
        h("summary", {}, `Audit ${each.number}, `, moment(each.at)), block(each.text))));
    return [h("label", { class: "check" }, box, "Failed commands only"), list, written].filter(Boolean);
  },
};

function showResources(data) {
  const failed = data.failed.map((each) => h("p", { class: "notice bad" }, text(each.name), ": ", text(each.why)));
  const list = data.items.length
    ? table("Running resources", ["Target", "Since", "State", "Size", "Owner"], data.items.map((each) => [
        text(each.target), moment(each.since), badge(each.state || "running"), text(each.size || "–"), text(each.owner || "–"),
      ]))
    : h("p", { class: "lead" }, "No billable resource of this project is running.");
  return [...failed, list];
}

export const costs = {
  id: "costs", name: "Costs", every: 30000,
  lead: "Known costs of models. A reply of a model without a price counts as nothing here.",
  path: () => "/api/costs",
  render({ days, total, limit, tasks, kinds }, view) {
    const most = Math.max(...days.map((each) => each.cost), 0.000001);
    const tile = (label, value) => h("div", { class: "card tile" }, h("p", { class: "big" }, value), h("p", { class: "meta" }, label));
    const bars = days.map((each) => {
      const bar = h("progress", { "aria-label": `Cost of ${each.day}` });
      bar.max = most;
      bar.value = each.cost;
      return h("li", {}, h("span", {}, each.day), bar, h("span", { class: "sum" }, dollars(each.cost)));
    });
    const found = h("div", { class: "list", id: "resources" }, view.resources ? showResources(view.resources) : []);
    const look = async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      announce("Asking the accounts…");
      try {
        view.resources = await post("/api/resources");
        found.replaceChildren(...showResources(view.resources));
        announce("The accounts answered.");
      } catch (error) {
        announce(error.message);
      } finally {
        button.disabled = false;
      }
    };
    const body = total || tasks.tasks ? [
      h("div", { class: "tiles" },
        tile(limit ? `today, of at most ${dollars(limit)}` : "today", dollars(days[0]?.cost)),
        tile("in all", dollars(total)),
        tasks.tasks !== undefined && tile("tasks", String(tasks.tasks)),
        tasks.tokens !== undefined && tile("tokens of tasks", tasks.tokens.toLocaleString())),
      h("section", { class: "card", "aria-labelledby": "days" }, h("h2", { id: "days" }, "The last seven days"), h("ul", { class: "bars" }, bars)),
      kinds.length > 0 && table("Kinds of tasks", ["Kind", "Tasks", "Mean cost", "Mean time", "Succeeded"], kinds.map((each) => [
        text(each.kind), String(each.tasks), dollars(each.cost), duration(each.seconds), `${each.succeeded} of ${each.succeeded + each.failed}`,
      ])),
    ] : [empty("Nothing was spent", "Costs appear here once a model with a known price has answered.")];
    return [...body, h("section", { class: "card", "aria-labelledby": "alive" },
      h("div", { class: "row" }, h("h2", { id: "alive" }, "Billable resources"),
        h("button", { type: "button", click: look, "data-key": "look" }, "Ask the accounts")),
      found)].filter(Boolean);
  },
};
