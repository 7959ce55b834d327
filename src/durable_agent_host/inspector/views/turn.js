// A turn and its messages, as they are stored

function turnView({ turn, messages }) {
  const receipt = talk.receipts.get(turn);
  const when = receipt?.ended_at ?? messages.at(-1)?.createdAt;
  const body = messages.flatMap((message) => messageView(message, messages, turn));
  if (messages.length === 0) body.push(askedLater(turn, receipt?.status === "failed"));
  if (receipt?.error && !messages.some(isMark)) body.push(el("div", { class: "message" }, el("p", { class: receipt.status === "cancelled" ? "note" : "note bad" }, `${receipt.error.type ?? "Error"}: ${receipt.error.message ?? ""}`)));
  if (receipt?.refusal) body.push(el("div", { class: "message" }, el("p", { class: "note" }, refusalText(receipt.refusal))));
  const resume = receipt?.status === "failed" && !receipt.joined_turn_id ? button("Resume", guarded(() => resumeTurn(turn)), "quiet resume") : null;
  const worked = receipt?.stats?.agent_milliseconds;
  return turnFrame(turn, [receipt ? state(receipt.status) : null, el("span", {}, clock(when)), worked ? el("span", { title: "of work, in the last attempt" }, duration(worked)) : null, receipt?.spent?.tokens ? el("span", {}, number(receipt.spent.tokens, "token")) : null, el("span", { class: "push" }), turn ? compareButton(turn) : null, resume], body);
}

async function resumeTurn(turn) {
  await call("POST", `${turnPath(turn)}/resume`);
  talk.seen = "";
  await readNewest();
}

const refusalText = ({ message, category }) => `Refused${category ? ` (${category})` : ""}: ${message}`;

// A turn that failed has left no message: what it was asked is read when it comes into view.
function askedLater(turn, hasFailed) {
  const box = el("div", { class: "message user" }, el("span", { class: "muted" }, "…"));
  const path = turnPath(turn);
  const seen = new IntersectionObserver(guarded(async (entries) => {
    if (!entries.some((one) => one.isIntersecting)) return;
    seen.disconnect();
    const { message } = await json("GET", path);
    const again = hasFailed && message ? button("Run again", guarded(() => runTurn(at.agent, at.session, message)), "quiet again") : null;
    show(box, el("div", { class: "row" }, el("span", { class: "who" }, "user"), el("span", { class: "push" }), again, button("Run again with", () => forkHere(turn, message ?? ""), "quiet fork")), el("div", { class: "text" }, long(message ?? "")));
  }));
  seen.observe(box);
  return box;
}

function turnFrame(turn, facts, body) {
  const select = el("button", { type: "button", class: "quiet", title: turn, "aria-label": `Turn ${plain(turn.slice(0, 8))}: show its steps`, on: { click: () => { go(at.agent, at.session, turn); if (innerWidth <= 900) view("log"); } } }, `Turn ${plain(turn.slice(0, 8))}`);
  return el("article", { class: "turn", "data-turn": turn, "aria-label": `Turn ${plain(turn)}` }, el("div", { class: "row" }, turn ? select : null, facts), body);
}

function messageView(message, messages, turn) {
  const role = message.role ?? "";
  const parts = (message.contents ?? []).map((one) => contentView(one, messages, role)).filter((one) => one !== null);
  if (role === "tool" && parts.length === 0) return [];
  if (isMark(message)) return [el("div", { class: "message" }, el("p", { class: "note bad" }, textOf(message)))];
  const asText = (click) => {
    const box = click.target.closest(".message"), isText = box.classList.toggle("as-text");
    for (const one of box.querySelectorAll(".md")) show(one, isText ? el("div", { class: "text" }, long(written.get(one))) : markdown(written.get(one)));
    click.target.textContent = isText ? "As Markdown" : "As text";
  };
  const actions = role === "assistant" && textOf(message) ? [button("As text", asText, "quiet as-text")] : role === "user" && turn ? [button("Run again with", () => forkHere(turn, textOf(message), filesOf(message)), "quiet fork")] : [];
  const who = el("div", { class: "row" }, el("span", { class: "who" }, plain(message.authorName ?? role)), el("span", { class: "push" }), actions);
  return [el("div", { class: `message ${role === "user" ? "user" : ""}` }, who, parts)];
}

// The last message of a failed turn, with the reason.
const isMark = (message) => own(message).additional_properties?.["durable_agent_host.failed"] === true;

const textOf = (message) => (message.contents ?? []).filter((one) => one.$type === "text").map((one) => one.text ?? "").join("");

// What came with a message beside its text, as the parts that `run` takes.
function filesOf(message) {
  return (message.contents ?? []).filter((one) => ["data", "uri", "hostedFile"].includes(one.$type)).map((one) => {
    if (one.$type === "hostedFile") return { type: "file", file_id: one.fileId };
    const kind = /^(image|audio)\//.exec(one.mediaType ?? "")?.[1] ?? "file", detail = own(one).additional_properties?.detail;
    return { type: kind, url: one.uri, media_type: one.mediaType || undefined, name: own(one).name, detail: kind === "image" ? detail : undefined };
  });
}
