// What went over the wire in a model call: read when it is opened

const openCalls = new Set(); // steps are drawn anew while a turn runs

function sentCalls(step) {
  const shown = el("div", {}), path = `${turnPath(at.turn)}/calls`, key = `${path} ${step.attempt} ${step.position}`;
  const open = guarded(async () => {
    if (!box.isConnected) return;
    box.open ? openCalls.add(key) : openCalls.delete(key);
    if (!box.open) return;
    const found = (await json("GET", path)).calls.filter((one) => one.position === step.position && one.strategy_call === undefined);
    const wanted = found.filter((one) => step.attempt === undefined || one.attempt === step.attempt);
    const calls = await Promise.all(wanted.map((one) => json("GET", `${path}/${part(one.name)}`)));
    show(shown, calls.length ? calls.map(sentCall) : el("div", { class: "muted" }, "Nothing is kept of it."));
  });
  const box = el("details", { class: "sent", open: openCalls.has(key), on: { toggle: open } }, el("summary", {}, "Request and answer"), shown);
  return box;
}

const parsed = (text) => { try { return JSON.parse(text); } catch { return null; } };
const listed = (value) => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]);
const readable = (value) => (typeof value === "string" ? pretty(parsed(value) ?? value) : pretty(value ?? ""));

// Parts of messages, as the services' APIs have them: a text, a call, a result; anything else as JSON.
function partsOf(role, value) {
  return listed(value).flatMap((one) => {
    if (typeof one === "string") return { role, text: one };
    const call = one.functionCall ?? one.toolUse ?? (["function_call", "tool_use"].includes(one.type) ? one : null);
    const result = one.functionResponse ?? one.toolResult ?? (["function_call_output", "tool_result"].includes(one.type) ? one : null);
    if (call) return { role: call.type === "function_call" ? "assistant" : role, name: `calls ${call.name}`, text: readable(call.arguments ?? call.input ?? call.args) };
    if (result) return { role: "tool", name: `result ${result.name ?? result.call_id ?? result.tool_use_id ?? result.toolUseId ?? ""}`, text: readable(result.output ?? result.content ?? result.response) };
    if (one.type === "reasoning" || one.type === "thinking") return { role: "assistant", name: "reasoning", text: one.thinking ?? (listed(one.summary).map((part) => part.text).join("\n") || pretty(one)) };
    if (one.role !== undefined || one.type === "message") return messageParts(one);
    if (typeof one.text === "string") return { role, name: one.thought ? "reasoning" : undefined, text: one.text };
    return { role, name: words(one.type ?? "part"), text: pretty(one) };
  });
}

function messageParts(one) {
  const role = one.role ?? "";
  const calls = listed(one.tool_calls).map((call) => ({ role, name: `calls ${call.function?.name ?? call.name}`, text: readable(call.function?.arguments ?? call.arguments) }));
  if (role === "tool") return [{ role, name: `result ${one.tool_call_id ?? one.name ?? ""}`, text: typeof one.content === "string" ? readable(one.content) : pretty(one.content) }];
  return [...partsOf(role, one.content ?? one.parts), ...calls];
}

function requestParts(body) {
  if (typeof body !== "object" || body === null) return [];
  const system = body.instructions ?? body.system ?? body.systemInstruction?.parts ?? body.system_instruction?.parts;
  const tools = listed(body.tools).flatMap((one) => one.functionDeclarations ?? one.function_declarations ?? one).map((one) => one.function ?? one.toolSpec ?? one);
  return [
    ...partsOf("system", system),
    ...(tools.length ? [{ role: "tools", name: tools.map((one) => one.name ?? one.type).join(", "), text: tools.map((one) => `${one.name ?? one.type}: ${one.description ?? ""}`).join("\n"), isFolded: true }] : []),
    ...partsOf("user", body.input),
    ...listed(body.messages ?? body.contents).flatMap(messageParts),
  ];
}

// An answer, or the events of a streamed one.
function answerParts(text) {
  const body = parsed(text);
  if (body !== null) return [...partsOf("assistant", body.output), ...listed(body.choices).flatMap((one) => messageParts(one.message ?? {})), ...(body.type === "message" ? partsOf("assistant", body.content) : []), ...listed(body.candidates).flatMap((one) => partsOf("assistant", one.content?.parts))];
  const events = text.split("\n").filter((line) => line.startsWith("data:")).map((line) => parsed(line.slice(5))).filter(Boolean);
  const last = events.findLast((one) => one.response?.output);
  if (last) return partsOf("assistant", last.response.output);
  const parts = new Map(), add = (key, made, more) => { if (!parts.has(key)) parts.set(key, { role: "assistant", text: "", ...made }); parts.get(key).text += more ?? ""; };
  for (const one of events) {
    const delta = one.choices?.[0]?.delta;
    if (delta?.content) add("text", {}, delta.content);
    for (const call of delta?.tool_calls ?? []) add(`call ${call.index}`, { name: `calls ${call.function?.name}` }, call.function?.arguments);
    if (one.content_block) add(`block ${one.index}`, { name: one.content_block.name ? `calls ${one.content_block.name}` : one.content_block.type === "thinking" ? "reasoning" : undefined });
    if (one.type === "content_block_delta") add(`block ${one.index}`, {}, one.delta?.text ?? one.delta?.partial_json ?? one.delta?.thinking);
    for (const part of one.candidates?.[0]?.content?.parts ?? []) add(part.functionCall ? `call ${part.functionCall.name}` : part.thought ? "thought" : "text", part.functionCall ? { name: `calls ${part.functionCall.name}` } : {}, part.functionCall ? pretty(part.functionCall.args) : part.text);
  }
  return [...parts.values()];
}

function partView({ role, name, text, isFolded }, place, all) {
  const isOpen = !isFolded && (text.length < 400 || place >= all.length - 2);
  return el("details", { class: "block", open: isOpen }, el("summary", {}, el("b", {}, plain(role)), " ", plain(name ?? ""), el("span", { class: "muted" }, ` ${number(text.length, "character")}`)), el("pre", { tabindex: "0" }, long(plainLines(text))));
}

function sentCall(call) {
  const side = (name, body, parts) => {
    if (!body?.text) return null;
    const value = parsed(body.text), text = value === null ? body.text : pretty(value), found = parts(body.text, value);
    const both = () => dialog(name, el("div", { class: "wide columns" }, el("div", {}, found.map(partView)), el("pre", { tabindex: "0", "aria-label": "JSON" }, long(text))), closing());
    return el("div", {}, el("div", { class: "row" }, el("b", {}, name), copyButton(text), found.length ? button("Side by side", both, "quiet") : null, body.complete ? null : el("span", { class: "bad" }, "not complete")),
      found.map(partView), el("details", { class: "block", open: !found.length }, el("summary", {}, "JSON"), el("pre", { tabindex: "0", "aria-label": `${name}, JSON` }, long(text))));
  };
  return el("div", {}, el("div", { class: "muted" }, [call.method, call.url, call.status].filter(Boolean).join(" · ")), call.error ? el("div", { class: "bad" }, call.error) : null, side("Request", call.request, (_, value) => requestParts(value)), side("Answer", call.answer, answerParts));
}
