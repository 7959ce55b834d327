// The public routes. A function key stands in a header, and stays in this tab.

const BASE = location.pathname.replace(/\/inspector\/?$/, "");
const KEY = "durable-agent-host.inspector.key";

// What stands behind # is not sent: no log of a server has it.
function takeKey() {
  const behind = location.hash.startsWith("#code=") ? location.hash.slice(1) : "";
  const given = new URLSearchParams(behind || location.search).get("code");
  if (!given) return false;
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname + (behind ? "" : location.hash));
  return true;
}

class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? body?.error ?? body?.ExceptionMessage ?? `HTTP ${status}`);
    this.status = status;
    this.body = body;
  }
}

function withKey(headers = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...headers, "x-functions-key": key } : headers;
}

const LOST = "Connection lost";

async function call(method, path, body, { headers = {}, signal, base = BASE } = {}) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const type = body === undefined ? {} : { "content-type": "application/json" };
  const answer = await fetch(base + path, { method, headers: withKey({ ...type, ...headers }), signal, cache: "no-store", ...sent }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error(`${LOST}: the host does not answer (${error.message})`);
  });
  if ($("notice").textContent.startsWith(LOST)) notice("");
  if (!answer.ok) {
    if (answer.status === 401 && base === BASE) askForKey();
    throw new Problem(answer.status, await answer.json().catch(() => null));
  }
  return answer;
}

const json = async (...request) => (await call(...request)).json();
const part = encodeURIComponent;
const agentPath = (agent) => `/agents/${part(agent)}`;
const sessionPath = (agent, session) => `${agentPath(agent)}/sessions/${part(session)}`;
const turnPath = (turn) => `${sessionPath(at.agent, at.session)}/turns/${part(turn)}`;

async function* events(path, last, signal) {
  const headers = { accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": String(last) }) };
  const answer = await call("GET", path, undefined, { headers, signal });
  if (answer.status === 204) throw new Problem(204, null);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let read; !(read = await reader.read()).done; ) {
    const blocks = (text + read.value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s)));
      if (fields.data) yield { id: Number(fields.id), name: fields.event, data: JSON.parse(fields.data) };
    }
  }
}
