// A step: a row for each kind

const STEPS = {
  wait: (one) => ({
    look: "held",
    name: one.reason === "queue" ? "Waited to begin" : one.reason === "retry" ? `${one.ended_at ? "Waited" : "Waits"} for ${duration(one.wait_seconds * 1000)}` : one.ended_at ? "Waited for an answer" : "Waits for an answer",
    more: one.cause ? [el("div", {}, one.cause)] : (one.calls ?? []).map((asked) => [el("div", {}, `${plain(asked.name ?? asked.call_id)}: ${asked.reason ?? ""}`), el("pre", {}, pretty(asked.arguments)), asked.answer ? el("div", {}, `${"approved" in asked.answer ? asked.answer.approved ? "Approved" : "Denied" : "error" in asked.answer ? "Answered with an error" : "Answered"}${asked.answer.reason ? `: ${asked.answer.reason}` : ""}`, asked.answer.arguments ? el("pre", {}, pretty(asked.answer.arguments)) : "") : null]),
  }),
  attempt: (one) => ({
    look: one.ended === "crashed" ? "attempt crashed" : "attempt",
    name: `Attempt ${one.number}`,
    state: one.ended,
    more: [
      one.number > 1 ? el("div", {}, `Found ${number(one.found_model_calls, "model call")} and ${number(one.found_tool_calls, "tool call")} in the journal: replayed, not run again.`) : null,
      one.ended === "crashed" ? el("div", { class: "bad" }, "It wrote no end: its process died, or another one took over.") : null,
    ],
  }),
  model_call: (one) => ({
    look: ["lost", "failed"].includes(one.outcome) ? "failed" : one.outcome === "cancelled" ? "held" : one.outcome ? "done" : "open",
    name: `Model call ${one.position + 1}`,
    state: one.outcome === "completed" ? null : one.outcome ?? "running",
    more: [el("div", {}, [one.model, one.usage ? tokens(one.usage) : null, costs(one.cost), one.finish_reason ? words(one.finish_reason) : null, one.refusal?.category, one.background ? "in the background" : null].filter(Boolean).join(" · ")), one.outcome === "lost" ? el("div", { class: "bad" }, `Cut off after ${number(one.characters, "character")}, which are void.`) : one.outcome === "cancelled" ? el("div", {}, `Cut off after ${number(one.characters, "character")}, which the conversation keeps.`) : null, one.reason ? el("div", { class: "bad" }, one.reason) : null, one.rejected ? el("div", { class: "bad" }, `Asked for again: ${one.rejected}`) : null, sentCalls(one)],
  }),
  tool_call: (one) => ({
    look: one.outcome === "success" ? "done" : one.outcome === "cancelled" ? "held" : one.outcome ? "failed" : one.in_doubt ? "crashed" : "open",
    name: one.name || "Tool",
    state: one.outcome ?? (one.in_doubt ? "unknown" : "running"),
    more: [
      one.in_doubt ? el("div", { class: "bad" }, "In doubt: it was running when its attempt ended without an end.") : null,
      one.outcome === "cancelled" ? el("div", {}, "It was running when the turn was cancelled: it may have taken effect.") : null,
      one.runs_in === "service" ? el("div", {}, "run by the model's service") : null,
      one.attempts.length > 1 ? el("div", {}, `started in attempts ${one.attempts.map((start) => start.attempt).join(", ")}`) : null,
      one.arguments === null ? null : el("pre", {}, long(plainLines(pretty(one.arguments)))),
      one.raised ? tracebackView(one.raised) : null,
      ...(one.files ?? []).map(madeFile),
      one.result ? el("details", {}, el("summary", {}, "Result"), el("pre", {}, one.result + (one.result_characters ? "\n…" : ""))) : null,
    ],
  }),
  strategy_call: (one) => ({ look: "done", name: "Compaction's model call", more: [el("div", {}, [one.model, one.usage ? tokens(one.usage) : null, costs(one.cost)].filter(Boolean).join(" · "))] }),
  message: (one) => ({ look: "done", name: "Message to the running turn", more: [el("pre", {}, one.message)] }),
  inner_call: (one) => ({ look: one.reason ? "failed" : "done", name: "Model call within", more: [one.reason ? el("div", { class: "bad" }, one.reason) : null, el("div", {}, [one.model, one.usage ? tokens(one.usage) : null, costs(one.cost)].filter(Boolean).join(" · "))] }),
  retry: (one) => ({ look: "held", name: one.repeats_run ? "Agent run again" : `Retry of model call ${(one.position ?? 0) + 1}`, more: [el("div", {}, `${one.reason}; after ${duration(one.wait_seconds * 1000)}`)] }),
  fallback: (one) => ({ look: "held", name: `Answered by ${one.client}`, more: one.reason ? [el("div", {}, one.reason)] : [] }),
  restart: () => ({ look: "held", name: "Clients told to discard", more: [el("div", {}, "The text of the lost model call is void.")] }),
  end: (one) => ({ look: one.status === "completed" ? "done" : ["cancelled", "incomplete", "refused"].includes(one.status) ? "held" : "failed", name: "End", state: one.status, more: [one.error ? el("div", { class: one.status === "cancelled" ? "" : "bad" }, `${one.error.type ?? ""}: ${one.error.message ?? ""}`) : null] }),
};

// As Python shows it, with the app's frames.
function tracebackView({ type, frames, ...last }) {
  const all = frames ?? (last.file ? [last] : []);
  const lines = all.map((frame) => `  ${frame.file}, line ${frame.line}, in ${frame.function}`);
  return el("pre", { class: "traceback", "aria-label": "Traceback" }, all.length ? `${plainLines(lines.join("\n"))}\n` : "", el("b", { class: "bad" }, plain(type)));
}

function stepView(one, begin, turn) {
  const { look, name, state: how, more } = STEPS[one.kind]?.(one) ?? { look: "", name: one.kind, more: [el("pre", {}, pretty(one))] };
  const from = Date.parse(one.began_at ?? one.at), to = one.ended_at ? Date.parse(one.ended_at) : NaN;
  const times = [Number.isFinite(from) ? `+${duration(from - begin)}` : null, Number.isFinite(to - from) && one.kind !== "end" ? duration(to - from) : null].filter(Boolean).join(", ");
  const item = el("li", { class: one.depth ? `${look} within` : look, "data-kind": one.kind, "data-turn": turn }, el("div", { class: "what" }, el("b", {}, plain(name)), how ? state(how) : null, el("span", { class: "when" }, times)));
  if (one.depth) item.style.setProperty("--depth", one.depth);
  if (Number.isFinite(to - from) && to > from) {
    item.append(el("div", { class: "length", "aria-hidden": "true" }, el("i", { "data-from": from, "data-to": to })));
  }
  item.append(el("div", { class: "more" }, (more ?? []).flat().filter(Boolean)));
  return item;
}
