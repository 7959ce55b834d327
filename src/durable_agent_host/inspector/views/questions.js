// Cards of calls that wait for a person, or for the client

const DECISIONS = ["approval", "in_doubt", "budget"];

function questionView(path, one, after) {
  if (!DECISIONS.includes(one.kind)) return resultView(path, one, after);
  const given = el("textarea", { class: "code", spellcheck: "false", value: pretty(one.arguments ?? {}), readonly: one.kind !== "approval" });
  given.rows = Math.max(3, Math.min(12, given.value.split("\n").length));
  const reason = el("input", { placeholder: "for the model, and for the record" });
  const before = given.value;
  const answer = (approved) => guarded(async () => {
    const body = { call_id: one.call_id, approved };
    if (reason.value) body.reason = reason.value;
    if (approved && given.value !== before) {
      try { body.arguments = JSON.parse(given.value); } catch (error) { return notice(`The arguments are no JSON: ${error.message}`, true); }
    }
    await call("POST", path, body);
    notice(approved ? "Approved." : "Denied.");
    await after();
    laterSteps(200);
  });
  return el("div", { class: "question", "data-call": one.call_id, role: "group", "aria-label": `Question about ${plain(one.name)}` },
    el("div", {}, el("b", {}, plain(one.name ?? "tool")), ` waits for you: ${one.reason ?? ""}`),
    el("label", {}, "Arguments", given), el("label", {}, "Reason", reason),
    el("div", { class: "row" }, button("Approve", answer(true), "main approve"), button("Deny", answer(false), "danger deny")));
}

function resultView(path, one, after) {
  const result = el("textarea", { class: "code", spellcheck: "false", rows: 3, placeholder: "text, or JSON" });
  const send = (name) => guarded(async () => {
    let value = result.value;
    if (name === "result") { try { value = JSON.parse(value); } catch { /* a text */ } }
    await call("POST", path, { call_id: one.call_id, [name]: value });
    notice(name === "result" ? "Answered." : "Answered with an error.");
    await after();
    laterSteps(200);
  });
  return el("div", { class: "question", "data-call": one.call_id, role: "group", "aria-label": `Call of ${plain(one.name)}` },
    el("div", {}, el("b", {}, plain(one.name ?? "tool")), ` waits for its result: ${one.reason ?? one.kind}`),
    el("pre", { "aria-label": "Arguments" }, pretty(one.arguments ?? {})),
    el("label", {}, "Result", result),
    el("div", { class: "row" }, button("Send result", send("result"), "main answer"), one.workflow ? null : button("Send as error", send("error"), "danger")));
}
