// Starts the app of this folder, with the practice model unless there is a key, and the server of the pages.
import { spawn } from "node:child_process";
import { createServer } from "vite";

process.env.COPILOTKIT_TELEMETRY_DISABLED ??= "true";
const host = spawn("durable-agent-host", ["dev", "--plan", "plan.yaml", "--no-open"], { stdio: "inherit" });
host.on("error", () => console.error("There is no durable-agent-host: . ../../.venv/bin/activate") ?? process.exit(1));
host.on("exit", (status) => process.exit(status ?? 0));
process.on("SIGTERM", () => host.kill());
process.on("SIGINT", () => {}); // the host gets it, too, and ends first

const server = await createServer();
await server.listen();
server.printUrls();
