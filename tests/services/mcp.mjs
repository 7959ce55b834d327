// The MCP client for JavaScript against an endpoint: prints what it got, by revision.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url] = process.argv.slice(2);
const seen = {};
for (const mode of ["legacy", "auto"]) {
  const options = { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } };
  const client = new Client({ name: "test", version: "1" }, options);
  const asked = [];
  client.setRequestHandler("elicitation/create", ({ params }) => {
    asked.push(params);
    return { action: "accept", content: { approved: true } };
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const { tools } = await client.listTools();
  const progress = [];
  const call = { name: "Payer", arguments: { query: `js ${mode}` } };
  const result = await client.callTool(call, { onprogress: (step) => progress.push(step) });
  const { resources } = await client.listResources();
  const uri = resources.find(({ uri }) => uri.endsWith(`/${result.structuredContent.sessionId}`))?.uri;
  const { contents } = await client.readResource({ uri });
  const version = client.getNegotiatedProtocolVersion?.();
  seen[mode] = { tools: tools.map(({ name }) => name), asked, progress, result, contents, version };
  await client.close();
}
console.log(JSON.stringify(seen));
