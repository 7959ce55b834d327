// Runs the conformance suite of MCP. It imports fs.globSync, which Node 20 has not, and which a server's scenarios do not use.
import { register } from "node:module";

const fs = 'export * from "node:fs"; export { default } from "node:fs"; export const globSync = undefined;';
const hooks = `export const resolve = (name, context, next) => name === "fs"
  ? { url: ${JSON.stringify(`data:text/javascript,${encodeURIComponent(fs)}`)}, shortCircuit: true }
  : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
await import("./node_modules/@modelcontextprotocol/conformance/dist/index.js");
