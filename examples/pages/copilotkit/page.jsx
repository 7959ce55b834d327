import { CopilotChat, CopilotKitProvider, useFrontendTool, useInterrupt } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const threadId = (sessionStorage.thread ??= crypto.randomUUID()); // a reloaded page comes back to it
const outlined = { border: "1px solid", padding: "0 0.5em" };

function Page() {
  useFrontendTool({
    name: "locate",
    description: "Where the user is.",
    parameters: z.object({}),
    handler: async () => Intl.DateTimeFormat().resolvedOptions().timeZone,
  });
  useInterrupt({
    agentId: "Helper",
    render: ({ interrupt, resolve }) => (
      <p id="question">
        {interrupt.metadata.name}({JSON.stringify(interrupt.metadata.arguments)})?{" "}
        <button type="button" style={outlined} onClick={() => resolve({ approved: true })}>Approve</button>{" "}
        <button type="button" style={outlined} onClick={() => resolve({ approved: false })}>Deny</button>
      </p>
    ),
  });
  return <CopilotChat agentId="Helper" threadId={threadId} />;
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider runtimeUrl="/runtime" enableInspector={false}>
    <Page />
  </CopilotKitProvider>,
);
