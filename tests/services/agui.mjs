// AG-UI's own client in several cases, one after the other: node agui.mjs URL, with a JSON of all cases as output.
import { HttpAgent, transformHttpEventStream, runHttpRequest } from "@ag-ui/client";

const [base] = process.argv.slice(2);
const cases = {};

class Client extends HttpAgent {
  streams = [];
  constructor(name, messages = []) {
    super({ url: `${base}/Helper`, threadId: `agui-${name}`, initialMessages: messages });
    this.fetch = async (url, init) => {
      const response = await fetch(url, init);
      if (!response.ok) return response;
      const record = { text: "" };
      this.streams.push(record);
      const decoder = new TextDecoder();
      const transform = (chunk, controller) => {
        record.text += decoder.decode(chunk, { stream: true });
        controller.enqueue(chunk);
      };
      return new Response(response.body.pipeThrough(new TransformStream({ transform })), response);
    };
  }
  connect(input) {
    return transformHttpEventStream(runHttpRequest(() => this.fetch(`${this.url}/connect`, this.requestInit(input))));
  }
  say(text, parameters) {
    this.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
    return this.take(() => this.runAgent(parameters, this.watch()));
  }
  watch() {
    return { onEvent: ({ event }) => { this.last = event; } };
  }
  async take(run) {
    const before = this.streams.length;
    let error, result;
    try { result = await run(); } catch (caught) { error = { message: caught.message, status: caught.status }; }
    const stream = (this.streams[before]?.text ?? "").split("\n").filter((line) => line.startsWith("data: ") && line.endsWith("}")).map((line) => JSON.parse(line.slice(6)));
    return { stream, error, result, last: this.last, state: this.state, messages: structuredClone(this.messages), interrupts: structuredClone(this.pendingInterrupts) };
  }
  resume(payloads) {
    const resume = this.pendingInterrupts.map(({ id }, i) => ({ interruptId: id, ...payloads[i] }));
    return this.take(() => this.runAgent({ resume }, this.watch()));
  }
}

const resolved = (payload) => ({ status: "resolved", payload });

{
  const client = new Client("plain");
  cases.plain = [await client.say("agui plain"), await client.say("agui again"), await client.say("agui third")];
}
{
  const client = new Client("approval");
  const waiting = await client.say("agui approval");
  const uncovered = new Client("approval", client.messages);
  const visitor = new Client("approval");
  cases.approval = [waiting, await uncovered.say("agui hurry"), await visitor.take(() => visitor.connectAgent({}, visitor.watch()))];
  cases.approval.push(await visitor.resume([resolved({ approved: true, editedArgs: { amount: 4 } })]));
  cases.approval.push(await client.resume([resolved({ approved: true, editedArgs: { amount: 4 } })]));
}
{
  const client = new Client("denial");
  cases.denial = [await client.say("agui denial"), await client.resume([{ status: "cancelled" }])];
}
{
  const client = new Client("tool");
  const tools = [{ name: "locate", description: "Where the user is.", parameters: { type: "object", properties: {} } }];
  cases.tool = [await client.say("agui tool", { tools })];
  for (const call of client.last.outcome.pendingToolCallIds) {
    client.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call, content: "Bonn" });
  }
  cases.tool.push(await client.take(() => client.runAgent({ tools }, client.watch())), await client.say("agui thanks"));
}
{
  const client = new Client("broken");
  cases.broken = [await client.say("agui broken"), await client.say("agui failing"), await client.say("agui better")];
}
{
  const client = new Client("inner");
  cases.inner = [await client.say("agui inner")];
}
{
  const client = new Client("edited");
  await client.say("agui plain one");
  const second = await client.say("agui plain two");
  client.setMessages(client.messages.slice(0, 2));
  cases.edited = [second, await client.say("agui other")];
}
{
  const client = new Client("dropped");
  const runId = crypto.randomUUID();
  client.addMessage({ id: "u1", role: "user", content: "agui dropped" });
  const first = await client.take(() => client.runAgent({ runId }, { onTextMessageContentEvent: () => { client.abortRun(); } }).catch(() => {}));
  cases.dropped = [first, await client.take(() => client.runAgent({ runId }, client.watch()))];
}
console.log(JSON.stringify(cases));
