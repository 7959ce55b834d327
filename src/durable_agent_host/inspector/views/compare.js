// Two turns side by side

const ORIGIN = "durable-agent-host.inspector.from."; // the turn of which this one is a variant
const marked = { turn: null };

function compareButton(turn) {
  const origin = parsed(sessionStorage.getItem(`${ORIGIN}${turn}`) ?? "null");
  const act = () => {
    const here = [at.agent, at.session, turn], other = origin ?? marked.turn;
    if (other && other[2] !== turn) {
      marked.turn = null;
      return go(...other, "vs", ...here);
    }
    marked.turn = here;
    return notice("Now choose Compare at the other turn, also of another session.");
  };
  return button(origin ? "Compare with the original" : "Compare", act, "quiet compare");
}

async function turnColumn([agent, session, turn]) {
  const path = `${sessionPath(agent, session)}/turns/${part(turn)}`;
  const [one, { steps: all }] = await Promise.all([json("GET", path), json("GET", `${path}/steps?limit=1000`)]);
  const nested = nest(all), begin = Date.parse(one.created_at), end = one.ended_at ? Date.parse(one.ended_at) : Date.now(), scale = scaleOf(nested, begin, end);
  const calls = nested.filter((step) => step.kind === "tool_call").map((step) => el("details", { class: "block" }, el("summary", {}, el("b", {}, plain(step.name)), " ", step.outcome ? state(step.outcome) : "", " ", duration(Date.parse(step.ended_at) - Date.parse(step.began_at))), preformatted(plainLines(pretty(step.arguments ?? "")), "Arguments"), preformatted(step.result ?? "", "Result")));
  return el("div", {},
    el("h3", {}, el("a", { href: address(agent, session, turn), on: { click: close } }, `${plain(session)} · ${plain(turn.slice(0, 8))}`)),
    el("div", { class: "row" }, state(one.status), el("span", {}, [one.model, `${duration(scale.work)} of work`, one.usage ? tokens(one.usage) : null, costs(one.spent?.cost), number(nested.filter((step) => ["model_call", "inner_call"].includes(step.kind)).length, "model call")].filter(Boolean).join(" · "))),
    shares(scale, null), one.options ? el("pre", { "aria-label": "Options" }, pretty(one.options)) : null,
    el("div", { class: "block" }, el("div", { class: "caption" }, "user"), el("div", { class: "inner text" }, long(one.message ?? ""))), calls,
    one.error ? el("p", { class: "note bad" }, `${one.error.type ?? ""}: ${one.error.message ?? ""}`) : answerView(one.response ?? ""));
}

async function showCompare(some, others) {
  const here = location.hash, columns = await Promise.all([turnColumn(some), turnColumn(others)]);
  if (location.hash === here) dialog("Two turns", el("div", { class: "wide columns turns" }, columns), closing());
}

const isComparing = () => $("dialog").open && $("dialog").querySelector(".turns") !== null;

function leaveCompare() {
  const [agent, session, turn, vs, ...other] = wanted();
  if (vs === "vs" && $("dialog").querySelector(".turns")) go(...(at.turn === other[2] ? other : [agent, session, turn]));
}
