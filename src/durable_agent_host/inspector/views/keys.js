// The keyboard

const KEYS = [["j / k", "next, previous session"], ["n / p", "next, previous turn"], ["/", "search"], ["m", "write a message"], ["Ctrl+Enter", "send it, also in a dialog"], ["a", "to the question that waits"], ["i", "what waits for you"], ["f", "run the turn again with other words or options"], ["t", "totals"], ["o", "orchestrations"], ["c", "new session"], ["r", "refresh"], ["1 2 3", "sessions, conversation, steps"], ["Esc", "close a dialog, leave a field"]];

function help() {
  dialog("Keys", el("table", {}, el("tbody", {}, KEYS.map(([key, does]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, does))))), closing());
}

function step(all, current, by) {
  const place = all.indexOf(current);
  return all[Math.max(0, Math.min(all.length - 1, place < 0 ? (by > 0 ? 0 : all.length - 1) : place + by))];
}

function moveTurn(by) {
  const all = [...$("messages").querySelectorAll(".turn")], next = step(all, all.find((one) => one.dataset.turn === at.turn), by);
  if (!next) return;
  go(at.agent, at.session, next.dataset.turn);
  next.scrollIntoView({ block: "nearest" });
}

function moveSession(by) {
  const all = [...$("sessions").querySelectorAll("a")], next = step(all, all.find((one) => one.getAttribute("aria-current")), by);
  if (!next) return;
  go(next.dataset.agent, next.dataset.session);
  next.scrollIntoView({ block: "nearest" });
}

const HOT = {
  j: () => moveSession(1), k: () => moveSession(-1), n: () => moveTurn(1), p: () => moveTurn(-1), "?": help, i: () => guarded(showInbox)(), c: newSession, t: () => guarded(showTotals)(), o: () => guarded(showOrchestrations)(), f: () => document.querySelector(".turn[aria-current] .fork")?.click(),
  "/": () => { view("list"); $("search").focus(); }, m: () => { view("talk"); $("message").focus(); }, r: () => guarded(refresh)(),
  a: () => { view("talk"); document.querySelector(".question .approve")?.focus(); },
  1: () => view("list"), 2: () => view("talk"), 3: () => view("log"),
};

function pressed(press) {
  const isWriting = press.target.closest?.("input, textarea, select");
  const form = press.key === "Enter" && (press.ctrlKey || press.metaKey) ? press.target.closest?.("form") : null;
  if (form) {
    press.preventDefault();
    form.requestSubmit();
  }
  if (isWriting && press.key === "Escape" && !$("dialog").open) press.target.blur();
  if (isWriting || press.ctrlKey || press.metaKey || press.altKey || $("dialog").open || !HOT[press.key]) return;
  press.preventDefault();
  HOT[press.key]();
}
