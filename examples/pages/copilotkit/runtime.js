// CopilotKit's runtime. It stores nothing, as the host has the threads: a page gets them by connect, also after a crash.
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { AgentRunner, CopilotRuntime, createCopilotRuntimeHandler } from "@copilotkit/runtime/v2";
import { createCopilotNodeHandler } from "@copilotkit/runtime/v2/node";

const api = "http://127.0.0.1:7071/api";
const name = "Helper";

class DurableRunner extends AgentRunner {
  run({ agent, input }) {
    return agent.run(input);
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
