// The first words of a conversation are its title; they are read when it comes into view.

const titles = new Map();
const titleKey = (agent, session) => JSON.stringify([agent, session]);

const TITLES = "durable-agent-host.inspector.titles";
const ownTitles = () => parsed(localStorage.getItem(TITLES) ?? "null") ?? {};

async function firstWords(path) {
  const page = await json("GET", `${path}?limit=1&cursor=1`);
  if (page.messages.length) return textOf(page.messages[0]);
  if (page.running_turn) return page.running_turn.message;
  const [failed] = (await json("GET", `${path}?limit=1`)).turns; // it has left no message
  return failed ? (await json("GET", `${path}/turns/${part(failed.turn_id)}`)).message : null;
}

async function readTitle(agent, session) {
  const key = titleKey(agent, session), own = ownTitles()[key];
  if (own) titles.set(key, own);
  if (titles.has(key)) return titles.get(key);
  const first = await firstWords(sessionPath(agent, session)).catch(() => null), text = (first ?? "").trim().replace(/\s+/g, " ");
  if (!text) return null;
  titles.set(key, text.length > 120 ? `${text.slice(0, 120)}…` : text);
  return titles.get(key);
}

const inView = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) {
    inView.unobserve(target);
    readTitle(target.dataset.agent, target.dataset.session).then((title) => { if (title) target.querySelector(".words").textContent = plain(title); });
  }
});
