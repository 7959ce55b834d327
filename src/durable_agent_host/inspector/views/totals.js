// Totals by agent and day, of the turns in the newest part of the newest conversations that the list shows.
async function showTotals() {
  const days = new Map(), lists = new Lists(found.lists?.query ?? {});
  const read = await lists.next(SEARCHED, undefined), count = read.length;
  const worker = async () => {
    for (let one; (one = read.shift()); ) {
      const page = await json("GET", sessionPath(one.agent, one.session_id)).catch(() => ({ turns: [] }));
      for (const turn of page.turns) {
        const end = new Date(turn.ended_at), day = end.toLocaleDateString([], { month: "short", day: "numeric" });
        const key = JSON.stringify([end.toLocaleDateString("sv"), one.agent]); // year, month, day
        const sums = days.get(key) ?? { day, agent: one.agent, turns: 0, failed: 0, work: 0, tokens: 0, cost: 0 };
        days.set(key, Object.assign(sums, { turns: sums.turns + 1, failed: sums.failed + (turn.status === "failed" ? 1 : 0), work: sums.work + (turn.stats?.agent_milliseconds ?? 0), tokens: sums.tokens + (turn.spent?.tokens ?? 0), cost: sums.cost + (turn.spent?.cost ?? 0) }));
      }
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  const figure = (text) => el("span", { class: "figure" }, text);
  const rows = [...days].sort(([a], [b]) => (a < b ? 1 : -1)).map(([, one]) => [figure(one.day), plain(one.agent), one.turns.toLocaleString(), one.failed ? el("span", { class: "bad" }, String(one.failed)) : "0", figure(duration(one.work)), one.tokens ? one.tokens.toLocaleString() : "", one.cost ? costs(one.cost) : ""]);
  const isFilled = (_, place) => place < 5 || rows.some((row) => row[place]), spent = [5, 6].some((place) => isFilled(null, place));
  const words = `Turns of the newest ${number(count, "session")} in the list.${spent ? " Tokens and costs are those of agents with budgets." : ""}`;
  dialog("Totals", el("p", { class: "muted" }, words), table(["Day", "Agent", "Turns", "Failed", "Work", "Tokens", "Cost"].filter(isFilled), rows.map((row) => row.filter(isFilled))), closing());
}
