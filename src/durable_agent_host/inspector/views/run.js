// Turns that begin here: a message, a new session, a turn again with other words or options

function forkHere(turn, text, files = []) {
  const message = el("textarea", { rows: "5", value: text }), id = el("input", { placeholder: "made for you", spellcheck: "false" });
  const kept = files.map((one) => ({ one, box: el("input", { type: "checkbox", checked: true }) }));
  const named = (one) => plain(one.name ?? one.file_id ?? (one.url?.startsWith("data:") ? one.media_type ?? one.type : one.url));
  const model = el("input", { spellcheck: "false", placeholder: "as before" }), more = el("textarea", { class: "code", rows: "2", spellcheck: "false", placeholder: '{"temperature": 0}' });
  json("GET", turnPath(turn)).then((one) => {
    const { model: asked, ...others } = one.options ?? {};
    model.placeholder = one.model ? `as before: ${one.model}` : "as before";
    model.value ||= asked ?? "";
    if (Object.keys(others).length) more.value ||= pretty(others);
  }).catch(() => undefined);
  let made = null; // a refused message is sent again into the same fork
  const fork = async () => {
    const options = more.value.trim() ? parsed(more.value) : {};
    if (options === null || typeof options !== "object" || Array.isArray(options)) throw new Error('Options are a JSON object, as in {"temperature": 0}.');
    if (model.value) options.model = model.value;
    const from = [at.agent, at.session, turn];
    made ??= await json("POST", `${sessionPath(at.agent, at.session)}/fork`, { at_turn: turn, before: true, ...(id.value ? { session_id: id.value } : {}) });
    const sent = kept.filter(({ box }) => box.checked).map(({ one }) => one);
    const parts = [...(message.value ? [{ type: "text", text: message.value }] : []), ...sent];
    await runTurn(at.agent, made.session_id, sent.length ? parts : message.value, options, from);
  };
  formDialog("Run again with", "Fork and run", fork,
    el("p", { class: "muted" }, "A new session begins with the conversation before this turn, and the turn runs there with your message. This session stays as it is."),
    el("label", {}, "Message", message), kept.map(({ one, box }) => el("label", { class: "check" }, box, `with ${named(one)}`)), el("label", {}, "New session", id),
    el("label", {}, "Model", model), el("label", {}, "Other options, as far as the app allows them", more));
  message.focus();
}

// The same message again, after an answer that did not arrive, is the same turn.
const lastTry = { written: "", key: "" };

async function runTurn(agent, session, message, options = {}, origin = null) {
  const body = { message, session_id: session, ...(Object.keys(options).length ? { options } : {}) }, written = JSON.stringify([agent, body]);
  if (lastTry.written !== written) Object.assign(lastTry, { written, key: crypto.randomUUID?.() ?? String(Math.random()) });
  const headers = { "idempotency-key": lastTry.key, "x-ms-wait-for-response": "false" };
  const begun = await json("POST", `${agentPath(agent)}/run`, body, { headers });
  lastTry.written = "";
  if (origin) sessionStorage.setItem(`${ORIGIN}${begun.turn_id}`, JSON.stringify(origin)); // before the turn is shown
  if ($("dialog").open) close();
  if (at.session !== session || at.agent !== agent) go(agent, session, begun.turn_id);
  else {
    beginLive(begun.turn_id);
    go(agent, session, begun.turn_id);
    $("messages").scrollTop = $("messages").scrollHeight;
  }
  setTimeout(guarded(findSessions), 600);
  return begun;
}

async function sendMessage(submit) {
  submit.preventDefault();
  const text = $("message").value;
  if (!text.trim()) return;
  $("message").value = "";
  try { await runTurn(at.agent, at.session, text); } catch (error) {
    $("message").value ||= text;
    throw error;
  }
}

function newSession() {
  const id = el("input", { value: `inspected-${Date.now().toString(36)}`, spellcheck: "false" }), message = el("textarea", { rows: "4" });
  const agent = el("select", {}, agents.map((name) => el("option", { value: name }, plain(name))));
  agent.value = $("agent").value || at.agent;
  formDialog("New session", "Run", () => runTurn(agent.value, id.value, message.value), el("label", {}, "Agent", agent), el("label", {}, "Session id", id), el("label", {}, "Message", message));
  message.focus();
}
