// CopilotKit's runtime. It stores nothing, as the host has the threads: a page gets them by connect, also after a crash.
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { AgentRunner, CopilotRuntime, createCopilotRuntimeHandler } from "@copilotkit/runtime/v2";
import { createCopilotNodeHandler } from "@copilotkit/runtime/v2/node";
import { EMPTY, defer, repeat, retry, tap, timer } from "rxjs";

const api = "http://127.0.0.1:7071/api";
const name = "Helper";

// The client of AG-UI cancels a connection that has broken, which fails once more, with nobody to catch it.
process.on("unhandledRejection", (error) => console.warn(`A connection was lost: ${error}`));

class DurableRunner extends AgentRunner {
  // A run that was cut off is sent again, with the number of the last event that came: the page does not notice.
  run({ agent, input }) {
    let count = 0;
    let isOver = false;
    return defer(() => {
      if (count) agent.headers = { ...agent.headers, "last-event-id": String(count - 1) };
      return agent.run(input);
    }).pipe(
      tap(({ type }) => {
        count += 1;
        isOver = type === "RUN_FINISHED" || type === "RUN_ERROR";
      }),
      retry({ delay: (error) => { if (error.status) throw error; return timer(1000); } }),
      repeat({ delay: () => isOver ? EMPTY : timer(1000) }),
    );
  }

  connect({ threadId }) {
    const body = JSON.stringify({ threadId, runId: crypto.randomUUID(), messages: [] });
    const request = { method: "POST", headers: { "content-type": "application/json" }, body };
    return transformHttpEventStream(runHttpRequest(() => fetch(`${api}/agui/${name}/connect`, request)));
  }

  async stop({ threadId }) {
    const session = `${api}/agents/${name}/sessions/${threadId}`;
    const { running_turn_id } = await (await fetch(`${session}?limit=1`)).json();
    return (await fetch(`${session}/turns/${running_turn_id}/cancel`, { method: "POST" })).ok;
  }

  async isRunning() {
    return false;
  }
}

const runtime = new CopilotRuntime({
  agents: { [name]: new HttpAgent({ url: `${api}/agui/${name}` }) },
  runner: new DurableRunner(),
});
export default createCopilotNodeHandler(createCopilotRuntimeHandler({ runtime, basePath: "/runtime" }));
