// The files beside this one declare, in any order; here the page begins, when all of them are there.

addEventListener("DOMContentLoaded", () => {
  let typing = null;
  $("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(guarded(findSessions), 250); });
  $("find").addEventListener("submit", (submit) => { submit.preventDefault(); guarded(findSessions)(); });
  for (const name of ["status", "used"]) $(name).addEventListener("change", () => guarded(findSessions)());
  $("agent").addEventListener("change", () => { notice(""); guarded(findSessions)(); });
  $("totals").addEventListener("click", guarded(showTotals));
  $("orchestrations").addEventListener("click", guarded(showOrchestrations));
  $("inbox").addEventListener("click", guarded(showInbox));
  $("more").addEventListener("click", guarded(() => findSessions(true)));
  $("again").addEventListener("click", guarded(refresh));
  $("new").addEventListener("click", newSession);
  $("help").addEventListener("click", help);
  $("key").addEventListener("click", askForKey);
  $("steps-more").addEventListener("click", guarded(() => readSteps(true)));
  $("actions").addEventListener("click", (click) => { const act = click.target.dataset?.act; if (act) guarded(ACTS[act])(); });
  $("tabs").addEventListener("click", (click) => { if (click.target.dataset.view) view(click.target.dataset.view); });
  $("ask").addEventListener("submit", guarded(sendMessage));
  $("dialog").addEventListener("close", leaveCompare);
  document.addEventListener("keydown", pressed);
  addEventListener("hashchange", guarded(arrive));
  setInterval(() => {
    if (document.hidden || !at.agent || $("dialog").open) return;
    guarded(readInbox)();
    if (found.pages === 1 && !found.words) guarded(findSessions)();
  }, 10000);
  view("list");
  takeKey();
  guarded(loadAgents)();
});

async function refresh() {
  talk.seen = "";
  await Promise.all([findSessions(), readInbox()]);
  if (at.session) await readNewest();
  if (at.turn) await readSteps();
}
