// Steps of the chosen turn

const steps = { timer: null, due: Infinity, cursor: null, start: "", before: [], earlier: [], read: [], took: 0 };

function selectTurn(turn) {
  at.turn = turn;
  Object.assign(steps, { start: "", before: [], earlier: [], took: 0 });
  markTurn();
  guarded(readSteps)();
}

function markTurn() {
  for (const one of $("messages").querySelectorAll(".turn"))
    one.dataset.turn === at.turn ? one.setAttribute("aria-current", "true") : one.removeAttribute("aria-current");
}

function laterSteps(milliseconds) {
  milliseconds = Math.max(milliseconds, 4 * steps.took); // reading a long turn takes the host some time
  const due = Date.now() + milliseconds;
  if (due >= steps.due) return;
  clearTimeout(steps.timer);
  steps.due = due;
  steps.timer = setTimeout(() => { steps.due = Infinity; guarded(readSteps)(); }, milliseconds);
}

// Pages that are read stay; while the turn runs, the last of them is read anew.
async function readSteps(isMore = false) {
  const turn = at.turn;
  if (!turn) return;
  if (isMore) {
    steps.before = [...$("steps").children];
    steps.earlier = steps.read;
    steps.start = steps.cursor;
  }
  const begun = performance.now(), start = steps.start;
  try {
    const read = await json("GET", `${turnPath(turn)}/steps?limit=${start ? 1000 : 200}${start ? `&cursor=${start}` : ""}`);
    steps.took = performance.now() - begun;
    if (turn === at.turn && start === steps.start) showSteps(read);
  } catch (error) {
    if (error.status !== 404) throw error;
    if (turn !== at.turn) return;
    showSteps(null);
    $("summary").textContent = "There are no steps: this session has no such turn, or they are no longer kept.";
  }
}

function showSteps(read) {
  $("steps-more").hidden = !read?.cursor;
  if (read === null) {
    $("summary").textContent = "Choose a turn";
    Object.assign(steps, { start: "", before: [], earlier: [] });
    return show($("steps"));
  }
  steps.cursor = read.cursor;
  const begin = Date.parse(read.created_at), end = read.ended_at ? Date.parse(read.ended_at) : Date.now();
  const nested = nest(read.steps);
  steps.read = [...steps.earlier, ...nested];
  const scale = scaleOf(steps.read, begin, end), slowest = slowestOf(steps.read, end);
  const facts = [state(read.status), ` ${duration(scale.work)} of work`, scale.waited >= 1000 ? `, waited ${duration(scale.waited)}` : "", read.usage?.total_token_count ? ` · ${tokens(read.usage)}` : "", read.spent?.cost === undefined ? "" : ` · ${costs(read.spent.cost)}`];
  const trace = read.trace_id ? el("div", { class: "row" }, "Trace ", el("code", {}, read.trace_id), copyButton(read.trace_id)) : null;
  show($("summary"), facts, shares(scale, slowest), el("div", {}, "Turn ", el("code", {}, read.turn_id)), trace, el("div", { class: "row" }, button("Copy as curl", guarded(() => curlOfTurn(read)), "quiet")));
  const old = [...$("steps").children].slice(steps.before.length);
  const made = nested.map((one, place) => {
    const content = JSON.stringify(one), kept = old[place];
    if (kept && drawn.get(kept) === content && kept.dataset.turn === read.turn_id) return kept;
    const item = stepView(one, begin, read.turn_id);
    drawn.set(item, content);
    return item;
  });
  made.forEach((one, place) => { if (one !== old[place]) old[place] ? old[place].replaceWith(one) : $("steps").append(one); });
  for (const one of old.slice(made.length)) one.remove();
  [...$("steps").children].forEach((item, place) => item.classList.toggle("slowest", steps.read[place] === slowest));
  for (const bar of $("steps").querySelectorAll(".length > i")) {
    const from = scale.place(Number(bar.dataset.from)), to = scale.place(Number(bar.dataset.to));
    bar.style.width = `${Math.min(100, 100 * (to - from))}%`;
    bar.style.marginLeft = `${Math.max(0, Math.min(98, 100 * from))}%`;
  }
  if (read.status === "running" || read.status === "waiting") laterSteps(3000);
}
