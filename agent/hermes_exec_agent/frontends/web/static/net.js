// Requests to the server of this page.

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin", redirect: "error", cache: "no-store" });
  } catch {
    throw new Failure(0, "The server of this page does not answer.");
  }
  let record = {};
  try {
    record = await response.json();
  } catch {
    // a response without JSON has no reason
  }
  if (!response.ok) throw new Failure(response.status, String(record.error || `The server answered ${response.status}.`));
  return record;
}

export function read(path, signal) {
  return request(path, { signal });
}

export function post(path, body = {}) {
  return request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Hermes-Web": "1" },
    body: JSON.stringify(body),
  });
}

export function socket(parameters) {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const opened = new WebSocket(`${scheme}//${location.host}/api/stream?${new URLSearchParams(parameters)}`);
  opened.binaryType = "arraybuffer";
  return opened;
}
