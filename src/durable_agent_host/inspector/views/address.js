// Where the user is: an agent, a session, a turn. The address says it, so a place can be sent to somebody.

const at = { agent: null, session: null, turn: null };
const wanted = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
const address = (...parts) => "#/" + parts.filter(Boolean).map(part).join("/");
const go = (...parts) => { location.hash = address(...parts); };

function view(name) {
  document.body.dataset.view = name;
  for (const tab of $("tabs").children) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
}

async function arrive() {
  if (takeKey()) {
    close();
    return loadAgents();
  }
  const here = location.hash, [agent, session, turn, vs, ...other] = wanted();
  if (vs === "vs" && other.length === 3) {
    await showCompare([agent, session, turn], other);
    if (at.session !== null || location.hash !== here) return;
  } else if (isComparing()) close();
  if (agent && !agents.includes(agent)) {
    closeSession();
    return notice(`This app has no agent ${plain(agent)} that is reachable by HTTP.`, true);
  }
  const isOther = agent && agent !== at.agent;
  if (agent) at.agent = agent;
  if (agent && $("agent").value && $("agent").value !== agent) {
    $("agent").value = agent;
    guarded(findSessions)();
  }
  if (session && (isOther || session !== at.session)) await openSession(session);
  if (location.hash !== here) return; // meanwhile the user has gone elsewhere
  if (turn && turn !== at.turn) selectTurn(turn);
  if (!session && at.session) closeSession();
}

function nameTab() {
  const name = at.session === null ? "" : titles.get(titleKey(at.agent, at.session)) ?? at.session;
  $("heading").textContent = name === at.session ? "" : plain(name);
  document.title = [inbox.count ? `(${inbox.count})` : "", [name ? plain(name) : "", at.session === null ? "" : plain(at.agent), "Inspector"].filter(Boolean).join(" · ")].join(" ").trim();
}
