// Steps of agents within an agent stand below the call that ran them. A model call there has only its end: it began when
// the step before it ended.
function nest(all) {
  const pathOf = (one) => one.path ?? (one.kind === "tool_call" ? `m${one.position}/t:${one.call_id}` : null);
  const calls = new Map(), below = new Map(), roots = [];
  for (const one of all) if (one.kind === "tool_call") calls.set(pathOf(one), one);
  for (const one of all) {
    let path = one.path ?? "";
    do path = path.slice(0, Math.max(0, path.lastIndexOf("/"))); while (path && !calls.has(path));
    const parent = calls.get(path);
    if (parent && parent !== one) below.set(parent, [...(below.get(parent) ?? []), one]);
    else roots.push(one);
  }
  const nested = [];
  const add = (one, depth) => {
    nested.push({ ...one, depth, hasInner: below.has(one) });
    let last = one.began_at;
    for (const inner of below.get(one) ?? []) {
      const timed = inner.kind === "inner_call" && last ? { ...inner, began_at: last < inner.at ? last : inner.at, ended_at: inner.at } : inner;
      const end = timed.ended_at ?? timed.at;
      if (end && (!last || end > last)) last = end;
      add(timed, depth + 1);
      below.set(timed, below.get(inner));
    }
  };
  for (const one of roots) add(one, 0);
  return nested;
}

// A step that a crash cut off has no end.
const isCut = (one) => one.outcome === "lost" || one.ended === "crashed" || (one.in_doubt && !one.outcome);
const spanOf = (one, now) => [Date.parse(one.began_at), one.ended_at ? Date.parse(one.ended_at) : isCut(one) ? NaN : now];
const isSpan = ([from, to]) => Number.isFinite(from) && to > from;

// Spans that overlap, as one.
function united(spans) {
  const all = [];
  for (const [from, to] of spans.filter(isSpan).sort((a, b) => a[0] - b[0])) {
    const last = all.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else all.push([from, to]);
  }
  return all;
}

const sum = (spans) => spans.reduce((total, [from, to]) => total + to - from, 0);

// A scale of work: waits of the turn, and times between its attempts, have a small width however long they were.
const WAIT = 0.03;
function scaleOf(all, begin, end) {
  const within = ([from, to]) => [Math.max(from, begin), Math.min(to, end)];
  const times = all.flatMap((one) => (one.kind === "wait" ? [] : [one.began_at, one.ended_at, one.at])).filter(Boolean).map((time) => Date.parse(time));
  const between = all.filter((one) => one.kind === "attempt" && one.number > 1).map((one) => Date.parse(one.began_at)).map((from) => [Math.max(begin, ...times.filter((time) => time < from)), from]);
  const waits = united([...all.filter((one) => one.kind === "wait").map((one) => spanOf(one, end)), ...between].map(within));
  const waited = sum(waits), work = Math.max(end - begin - waited, 0);
  const unit = (1 - WAIT * waits.length) / Math.max(work, 1);
  const isScaled = waits.length * WAIT < 0.5 && waited > 0;
  const place = (time) => {
    if (!isScaled) return (time - begin) / Math.max(end - begin, 1);
    let before = 0, width = 0;
    for (const [from, to] of waits) {
      if (time <= from) break;
      before += Math.min(time, to) - from;
      width += WAIT * ((Math.min(time, to) - from) / (to - from));
    }
    return width + (time - begin - before) * unit;
  };
  const spans = (kinds) => united(all.filter((one) => kinds.includes(one.kind) && !one.depth).map((one) => spanOf(one, end)).map(within));
  const inner = united(all.filter((one) => one.kind === "inner_call").map((one) => spanOf(one, end)).map(within));
  const model = united([...spans(["model_call", "strategy_call"]), ...inner]), both = united([...model, ...spans(["tool_call"])]);
  const modelTime = sum(model), busy = sum(both) - overlap(both, waits);
  return { place, work, waited, model: modelTime, tools: Math.max(0, busy - modelTime), other: Math.max(0, work - busy) };
}

const overlap = (some, others) => some.reduce((total, [from, to]) => total + others.reduce((inner, [a, b]) => inner + Math.max(0, Math.min(to, b) - Math.max(from, a)), 0), 0);

function slowestOf(all, now) {
  const timed = all.filter((one) => ["model_call", "strategy_call", "inner_call", "tool_call"].includes(one.kind) && !one.hasInner && isSpan(spanOf(one, now)));
  const length = (one) => spanOf(one, now)[1] - spanOf(one, now)[0];
  return timed.reduce((best, one) => (best === null || length(one) > length(best) ? one : best), null);
}

// Why a turn took as long as it did, in one line: whose time it was, and the longest step.
function shares(scale, slowest) {
  const whole = Math.max(scale.work, 1);
  const share = (kind, time) => { const bar = el("i", { class: `${kind}-share` }); bar.style.width = `${(100 * time) / whole}%`; return bar; };
  const name = slowest && (slowest.kind === "tool_call" ? plain(slowest.name || "tool") : slowest.kind === "model_call" ? `model call ${slowest.position + 1}` : slowest.kind === "inner_call" ? "a model call within" : "compaction");
  const length = slowest ? Date.parse(slowest.ended_at ?? new Date().toISOString()) - Date.parse(slowest.began_at) : 0;
  const reveal = () => { const item = $("steps").querySelector(".slowest"); item?.setAttribute("tabindex", "-1"); item?.scrollIntoView({ block: "center" }); item?.focus(); };
  return [
    el("div", { class: "shares", "aria-hidden": "true" }, share("model", scale.model), share("tool", scale.tools)),
    el("div", { class: "legend" }, el("span", { class: "model" }, `model ${duration(scale.model)}`), el("span", { class: "tool" }, `tools ${duration(scale.tools)}`), el("span", {}, `other ${duration(scale.other)}`), scale.waited >= 100 ? el("span", { class: "waits" }, `waits and crashes ${duration(scale.waited)}, not on the scale`) : null),
    slowest ? el("div", {}, "Longest: ", button(`${name}, ${duration(length)} (${Math.min(100, Math.round((100 * length) / whole))} %)`, reveal, "quiet longest")) : null,
  ];
}
