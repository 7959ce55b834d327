// What waits for somebody, over all agents

const inbox = { count: 0 };

async function readPending() {
  const pending = [];
  for (let cursor = "", pages = 0; cursor !== null && pages < 20; pages++) {
    const page = await json("GET", `/pending${cursor ? `?cursor=${part(cursor)}` : ""}`);
    pending.push(...page.pending_calls);
    cursor = page.cursor;
  }
  return pending;
}

async function readInbox() {
  const pending = await readPending();
  inbox.count = pending.length;
  $("inbox").textContent = pending.length ? `Waiting: ${pending.length}` : "Waiting";
  $("inbox").className = pending.length ? "some" : "";
  nameTab();
  return pending;
}

async function showInbox() {
  const pending = await readInbox();
  const cards = pending.map((one) => {
    const path = one.workflow ? `/workflow/${part(one.workflow)}/respond/${part(one.run_id)}` : `${sessionPath(one.agent, one.session_id)}/turns/${part(one.turn_id)}/answers`;
    const name = el("span", {}, one.workflow ? `Workflow ${plain(one.workflow)}` : plain(one.session_id));
    if (!one.workflow) readTitle(one.agent, one.session_id).then((title) => { if (title) name.textContent = plain(title); });
    const place = one.workflow ? name : el("a", { href: address(one.agent, one.session_id, one.turn_id), on: { click: close } }, name);
    const answered = async () => {
      card.remove();
      await readInbox();
      if (!list.children.length) show(list, el("p", {}, "Nothing waits for you."));
      if (at.session) { talk.seen = ""; await readNewest(); }
      guarded(findSessions)();
    };
    const card = el("div", {}, el("div", { class: "row muted" }, place, one.agent ? el("span", {}, plain(one.agent)) : null, el("span", {}, `since ${clock(one.created_at)}`), one.expires_at ? el("span", {}, `until ${clock(one.expires_at)}`) : null), questionView(path, one, answered));
    return card;
  });
  const list = el("div", { class: "body" }, cards.length ? cards : el("p", {}, "Nothing waits for you."));
  dialog("What waits for you", list, closing());
}
