// Words in what was said: the newest part of each conversation is read here, as the user would.
const SEARCHED = 200;
const texts = new Map();

async function textOfSession({ agent, session_id: session, last_used_at: used, status }, signal) {
  const key = JSON.stringify([agent, session, used]);
  if (texts.has(key)) return texts.get(key);
  const page = await json("GET", sessionPath(agent, session), undefined, { signal }).catch((error) => { if (error.name === "AbortError") throw error; return { messages: [] }; });
  const said = (one) => one.text ?? [one.name, one.arguments, one.result].filter((value) => value !== undefined && value !== null).map(pretty).join(" ");
  const text = page.messages.flatMap((message) => (message.contents ?? []).map(said)).concat(page.running_turn?.message ?? []).join("\n");
  if (status !== "running" && text.length < 1e6) texts.set(key, text);
  return text;
}

async function findTexts(signal) {
  const words = found.words.toLowerCase(), listed = new Set([...$("sessions").querySelectorAll("a")].map((one) => one.hash));
  const read = await found.texts.next(SEARCHED, signal);
  const worker = async () => {
    for (let one; (one = read.shift()) && !signal.aborted; ) {
      const text = await textOfSession(one, signal), place = text.toLowerCase().indexOf(words);
      found.searched++;
      $("searched").hidden = false;
      $("searched").textContent = `Read ${number(found.searched, "session")}.`;
      if (place < 0 || signal.aborted) continue;
      const from = Math.max(0, place - 30), end = place + words.length;
      const hit = el("div", { class: "hit" }, from ? "…" : "", text.slice(from, place), el("mark", {}, text.slice(place, end)), text.slice(end, end + 60));
      if (!listed.has(address(one.agent, one.session_id))) $("sessions").append(sessionItem(one, hit));
      $("none").hidden = true;
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
}
