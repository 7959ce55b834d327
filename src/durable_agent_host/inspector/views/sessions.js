// The list of sessions

const found = { lists: null, next: null, texts: null, words: "", searched: 0, controller: null, pages: 0 };

let agents = [];

async function loadAgents() {
  agents = (await json("GET", "/agents")).agents.map(({ name }) => name);
  const every = agents.length > 1 ? [el("option", { value: "" }, "all agents")] : [];
  show($("agent"), every, agents.map((name) => el("option", { value: name }, plain(name))));
  const [agent, session] = wanted();
  at.agent = agents.includes(agent) ? agent : agents[0] ?? null;
  if (agents.includes(agent) && !session) $("agent").value = agent;
  notice(agents.length ? "" : "This app has no agent that is reachable by HTTP.");
  if (at.agent) await findSessions();
  guarded(readInbox)();
  await arrive();
}

// The sessions of several agents, newest first: of each agent a page, and the next one when all of it is shown.
class Lists {
  constructor(query) {
    this.query = query;
    this.sources = ($("agent").value ? [$("agent").value] : agents).map((agent) => ({ agent, items: [], cursor: "" }));
  }

  get hasMore() { return this.sources.some((one) => one.items.length || one.cursor !== null); }

  async fill(source, signal) {
    const query = new URLSearchParams({ limit: "50", details: "true", ...this.query, ...(source.cursor ? { cursor: source.cursor } : {}) });
    const page = await json("GET", `${agentPath(source.agent)}/sessions?${query}`, undefined, { signal });
    source.items.push(...page.sessions.map((one) => ({ ...one, agent: source.agent })));
    source.cursor = page.cursor;
  }

  async next(count, signal) {
    const taken = [], filled = new Set();
    while (taken.length < count) {
      const empty = this.sources.filter((one) => !one.items.length && one.cursor !== null && !filled.has(one.cursor + one.agent));
      for (const one of empty) filled.add(one.cursor + one.agent);
      await Promise.all(empty.map((one) => this.fill(one, signal)));
      if (this.query.status && empty.length && taken.length) break; // a page of a status can be short: the button goes on
      const [newest] = this.sources.filter((one) => one.items.length).sort((a, b) => (a.items[0].last_used_at < b.items[0].last_used_at ? 1 : -1));
      if (!newest) break;
      taken.push(newest.items.shift());
    }
    return taken;
  }
}

async function findSessions(isMore = false) {
  if (!isMore || !found.lists) {
    found.controller?.abort();
    found.controller = new AbortController();
    const query = {};
    if ($("status").value) query.status = $("status").value;
    if ($("used").value) query.used_from = new Date(Date.now() - 1000 * Number($("used").value)).toISOString();
    const words = $("search").value.trim();
    Object.assign(found, { words, next: new Lists(words ? { ...query, search: words } : query), texts: words ? new Lists(query) : null, searched: 0 });
  }
  const signal = found.controller.signal, lists = isMore ? found.lists : found.next;
  const items = (await lists.next(50, signal)).map((one) => sessionItem(one));
  if (signal.aborted) return;
  found.lists = lists;
  found.pages = isMore ? found.pages + 1 : 1;
  if (isMore) $("sessions").append(...items);
  else {
    const focused = document.activeElement?.closest("#sessions") ? document.activeElement.hash : null;
    show($("sessions"), items);
    if (focused !== null) [...$("sessions").querySelectorAll("a")].find((one) => one.hash === focused)?.focus({ preventScroll: true });
  }
  if (found.texts) await findTexts(signal);
  $("searched").hidden = !found.texts;
  $("more").hidden = !lists.hasMore && !found.texts?.hasMore;
  $("none").hidden = $("sessions").children.length > 0;
}

function sessionItem({ agent, session_id: id, last_used_at: used, status, message_count: count, spent }, hit = null) {
  const facts = [status ? state(status) : null, $("agent").value ? null : el("span", {}, plain(agent)), el("span", {}, clock(used)), count ? el("span", {}, `${count} messages`) : null, spent?.cost === undefined ? null : el("span", {}, costs(spent.cost))];
  const current = id === at.session && agent === at.agent ? { "aria-current": "true" } : {};
  const title = titles.get(titleKey(agent, id));
  const made = el("a", { href: address(agent, id), "data-agent": agent, "data-session": id, ...current }, el("div", { class: "words" }, title ? plain(title) : ""), hit, el("div", { class: "id" }, plain(id)), el("div", { class: "row" }, facts));
  if (!title) inView.observe(made);
  return el("li", {}, made);
}

function markSession() {
  for (const one of $("sessions").querySelectorAll("a"))
    one.dataset.session === at.session && one.dataset.agent === at.agent ? one.setAttribute("aria-current", "true") : one.removeAttribute("aria-current");
}
