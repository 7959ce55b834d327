// A conversation: pages of what is stored, and what runs now

const PAGE = 60;
const drawn = new WeakMap(); // what an element was made of
const talk = { controller: null, previous: null, count: -1, live: new Map(), receipts: new Map(), seen: "", reads: 0, drawn: 0 };

function closeSession() {
  talk.controller?.abort();
  at.session = at.turn = null;
  $("title").textContent = "Choose a session";
  nameTab();
  $("facts").textContent = "";
  $("actions").hidden = $("ask").hidden = true;
  show($("messages"));
  showSteps(null);
  markSession();
  view("list");
}

async function openSession(session) {
  talk.controller?.abort();
  talk.controller = new AbortController();
  Object.assign(talk, { previous: null, count: -1, live: new Map(), receipts: new Map(), seen: "", reads: 0, drawn: 0 });
  at.session = session;
  at.turn = null;
  notice("");
  markSession();
  $("title").textContent = plain(session);
  nameTab();
  $("actions").hidden = $("ask").hidden = false;
  show($("messages"));
  showSteps(null);
  view("talk");
  await readNewest();
  readTitle(at.agent, session).then(nameTab);
  watch(talk.controller.signal);
}

async function readNewest() {
  const signal = talk.controller.signal, order = ++talk.reads;
  const path = sessionPath(at.agent, at.session), read = (limit) => json("GET", `${path}?limit=${limit}`, undefined, { signal });
  const stateOf = (page) => JSON.stringify([page.message_count, page.turns.at(-1)?.turn_id, page.running_turn_id, page.queued_turn_ids]);
  let page;
  try {
    if (talk.seen !== "" && stateOf(await read(1)) === talk.seen) return;
    page = await read(PAGE);
  } catch (error) {
    if (error.status !== 404) throw error;
    page = { messages: [], turns: [], previous: null, message_count: 0, running_turn_id: null, queued_turn_ids: [] };
  }
  if (signal.aborted || order < talk.drawn) return; // what was read later is shown already
  const seen = stateOf(page), isFirst = talk.drawn === 0;
  if (seen === talk.seen) return;
  Object.assign(talk, { seen, drawn: order });
  const spent = page.spent ? ` · ${[page.spent.tokens === undefined ? null : `${page.spent.tokens.toLocaleString()} tokens`, costs(page.spent.cost)].filter(Boolean).join(" · ")}` : "";
  $("facts").textContent = page.message_count ? `${number(page.message_count, "message")}${spent}` : "";
  if (isFirst || page.message_count < PAGE) talk.previous = page.previous;
  for (const one of page.turns) talk.receipts.set(one.turn_id, one);
  const ended = new Set(page.turns.map((one) => one.turn_id));
  const unfinished = [page.running_turn_id, ...page.queued_turn_ids].filter((turn) => turn && !ended.has(turn));
  for (const [turn, live] of talk.live) if (ended.has(turn) || (live.hasEnded && !unfinished.includes(turn))) { live.stop(); talk.live.delete(turn); }
  const box = $("messages"), isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  const turns = groups(page);
  const shown = new Map([...box.querySelectorAll(".turn")].map((one) => [one.dataset.turn, one]));
  for (const one of turns.filter((one) => !talk.live.has(one.turn))) {
    const old = shown.get(one.turn), content = JSON.stringify([one.messages, talk.receipts.get(one.turn)]);
    if (old && drawn.get(old) === content) continue;
    const made = turnView(one);
    drawn.set(made, content);
    if (old) old.replaceWith(made);
    else box.append(made);
    shown.set(one.turn, made);
  }
  unfinished.forEach(beginLive);
  notes(page, true);
  earlier();
  if (isFirst || isAtEnd) box.scrollTop = box.scrollHeight;
  if (isFirst && !wanted()[2]) {
    const last = page.running_turn_id ?? turns.at(-1)?.turn;
    if (last) selectTurn(last);
  } else markTurn();
  if (isFirst && wanted()[2]) await reveal(wanted()[2]);
}

// A turn that an address names can be on an earlier page.
async function reveal(turn) {
  const node = () => [...$("messages").querySelectorAll(".turn")].find((one) => one.dataset.turn === turn);
  for (let pages = 0; !node() && talk.previous !== null && pages < 20; pages++) await readEarlier();
  node()?.scrollIntoView({ block: "start" });
}

function groups(page) {
  const turns = [];
  for (const message of page.messages) {
    const last = turns.at(-1);
    if (last && last.turn === (message.turn_id ?? "")) last.messages.push(message);
    else turns.push({ turn: message.turn_id ?? "", messages: [message] });
  }
  const known = new Set(turns.map((one) => one.turn));
  for (const receipt of page.turns) if (!known.has(receipt.turn_id)) {
    const place = turns.findIndex((one) => (talk.receipts.get(one.turn)?.ended_at ?? "") > receipt.ended_at);
    turns.splice(place < 0 ? turns.length : place, 0, { turn: receipt.turn_id, messages: [] });
  }
  return turns;
}

// What stands above a page: what it does not show.
function notes(page, isNewest) {
  if (isNewest) $("messages").querySelectorAll(":scope > .newest").forEach((one) => one.remove());
  const kind = isNewest ? " newest" : "";
  if (isNewest && !page.message_count && !page.turns.length && !talk.live.size) $("messages").prepend(el("p", { class: "note newest empty" }, "This session has no message yet."));
  for (const { place, problem } of page.problems ?? []) $("messages").prepend(el("p", { class: `note bad${kind}` }, `Not shown: ${place ?? ""} ${problem ?? ""}`));
  for (const one of page.left_out ?? []) {
    const load = button("Download the session", guarded(() => download(`${sessionPath(at.agent, at.session)}/export`, `${at.session}.jsonl`)), "quiet");
    $("messages").prepend(el("p", { class: `note${kind}` }, `A large text of turn ${plain(one.turn_id.slice(0, 8))} is left out (${one.size.toLocaleString()} bytes, ${plain(one.path)}). `, load));
  }
}

function earlier() {
  $("earlier")?.remove();
  if (talk.previous === null) return;
  $("messages").prepend(el("button", { id: "earlier", type: "button", on: { click: guarded(readEarlier) } }, "Earlier messages"));
}

async function readEarlier() {
  const page = await json("GET", `${sessionPath(at.agent, at.session)}?limit=${PAGE}&cursor=${part(talk.previous)}`);
  for (const one of page.turns) talk.receipts.set(one.turn_id, one);
  talk.previous = page.previous;
  const box = $("messages"), height = box.scrollHeight;
  $("earlier")?.remove();
  box.prepend(...groups({ ...page, turns: [] }).map(turnView));
  notes(page, false);
  earlier();
  box.scrollTop += box.scrollHeight - height;
  markTurn();
}

async function watch(signal) {
  while (!signal.aborted) {
    await new Promise((wake) => setTimeout(wake, talk.live.size ? 4000 : 2000));
    if (signal.aborted || document.hidden || $("dialog").open) continue;
    await guarded(readNewest)();
  }
}
