// Orchestrations of the app and runs of its workflows, by the routes of the Durable Task extension

const HUB = "/runtime/webhooks/durabletask/instances";
const TURN = "agent_turn"; // the orchestration of a turn, which has its steps in a session
const orchestrationName = (name) => plain(name.startsWith("dafx-") ? `Workflow ${name.slice(5)}` : name);
const spaced = (name) => name.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

async function hub(path, headers = {}) {
  try {
    return await call("GET", HUB + path, undefined, { base: "", headers });
  } catch (error) {
    throw [401, 403].includes(error.status) ? new Error("Orchestrations are read with the master key of the app: give it with the button Function key.") : error;
  }
}

async function readOrchestrations() {
  const all = [], from = part(new Date(Date.now() - 86400000).toISOString());
  for (let pages = 0, more = null; pages < 20 && (pages === 0 || more); pages++) {
    const answer = await hub(`?top=500&showInput=false&createdTimeFrom=${from}`, more ? { "x-ms-continuation-token": more } : {});
    all.push(...(await answer.json()).filter((one) => one.name !== TURN));
    more = answer.headers.get("x-ms-continuation-token");
  }
  return all.sort((one, other) => Date.parse(other.createdTime) - Date.parse(one.createdTime));
}

async function showOrchestrations() {
  const all = await readOrchestrations();
  const rows = all.map((one) => [[button(orchestrationName(one.name), guarded(() => showOrchestration(one.instanceId)), "quiet"), el("div", {}, el("code", {}, plain(one.instanceId)))], state(one.runtimeStatus.toLowerCase()), clock(one.createdTime)]);
  dialog("Orchestrations", el("p", { class: "muted" }, "Orchestrations of the app and runs of its workflows that began in the last 24 hours; turns are in their sessions."),
    rows.length ? table(["Name and instance", "Status", "Began"], rows) : el("p", {}, "There are none."), closing());
}

async function showOrchestration(id) {
  const one = await (await hub(`/${part(id)}?showHistory=true&showHistoryOutput=true`)).json(), begin = Date.parse(one.historyEvents[0]?.Timestamp ?? one.createdTime);
  const value = (name, content) => (content === null || content === undefined ? null : block(name, readable(content)));
  const rows = one.historyEvents.map((event) => {
    const end = Date.parse(event.Timestamp), took = event.ScheduledTime ? `, took ${duration(end - Date.parse(event.ScheduledTime))}` : "";
    const name = [el("b", {}, plain(event.FunctionName ?? event.Name ?? "")), ` ${spaced(event.EventType)}`, took];
    return [el("span", { class: "figure" }, `+${duration(end - begin)}`), [name, value("Value", event.Result ?? event.Input ?? event.Reason)]];
  });
  dialog(orchestrationName(one.name), el("div", { class: "row" }, state(one.runtimeStatus.toLowerCase()), el("code", {}, plain(id)), copyButton(id), el("span", {}, clock(one.createdTime))),
    value("Input", one.input), value("Custom status", one.customStatus), value("Output", one.output), table(["At", "What happened"], rows),
    closing(button("Refresh", guarded(() => showOrchestration(id))), button("All", guarded(showOrchestrations))));
}
