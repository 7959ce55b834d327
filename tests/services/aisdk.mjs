// A page of the AI SDK without React: useChat is AbstractChat with React's state. Prints what each case has seen.
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses as hasApprovals,
  lastAssistantMessageIsCompleteWithToolCalls as hasResults,
} from "ai";

const api = process.argv[2];

class Chat extends AbstractChat {
  constructor({ messages = [], ...init }) {
    const seen = { errors: [], ends: [], tools: [] };
    super({
      ...init,
      transport: new DefaultChatTransport({ api, ...init.transport }),
      onError: (error) => seen.errors.push(error.message),
      onFinish: ({ finishReason }) => seen.ends.push(finishReason ?? null),
      sendAutomaticallyWhen: (options) => hasResults(options) || hasApprovals(options),
      onToolCall: ({ toolCall: { toolName, toolCallId } }) => {
        seen.tools.push(toolName);
        if (toolName === "locate") this.addToolOutput({ tool: toolName, toolCallId, output: { town: "Bonn" } });
      },
      state: {
        status: "ready", error: undefined, messages,
        pushMessage(message) { this.messages = [...this.messages, structuredClone(message)]; },
        popMessage() { this.messages = this.messages.slice(0, -1); },
        replaceMessage(index, message) { this.messages = this.messages.with(index, structuredClone(message)); },
        snapshot: (value) => structuredClone(value),
      },
    });
    this.seen = seen;
  }

  get text() { return this.lastMessage.parts.filter((part) => part.type === "text").map((part) => part.text).join("|"); }
  get tools() { return this.lastMessage.parts.filter((part) => part.type === "dynamic-tool"); }

  async until(test) {
    while (!test(this)) await new Promise((done) => setTimeout(done, 10));
  }

  async rest() {  // an automatic answer begins after the promise of the call before it
    await this.until(() => this.status === "error" || (this.status === "ready" && !this.tools.some((part) => part.state === "approval-responded" || (part.state === "input-available" && !part.providerExecuted))));
  }

  async approve() {
    const { approval } = this.tools.find((part) => part.state === "approval-requested");
    await this.addToolApprovalResponse({ id: approval.id, approved: true });
    await this.rest();
  }
}

const read = async (id) => (await (await fetch(`${api}/${id}`)).json()).messages;
const shape = ({ role, parts }) => [role, ...parts.map((part) => part.state ? `${part.toolName ?? part.type}:${part.state}` : part.type)];

const cases = {
  async text() {
    const chat = new Chat({ id: "text" });
    await chat.sendMessage({ text: "first question", files: [{ type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" }] });
    await chat.sendMessage({ text: "second question" });
    return { text: chat.text, ends: chat.seen.ends, shapes: chat.messages.map(shape), metadata: chat.lastMessage.metadata, stored: (await read("text")).map(shape) };
  },
  async approved() {
    const chat = new Chat({ id: "approved" });
    await chat.sendMessage({ text: "pay and locate" });
    await chat.until(() => chat.status === "ready");
    const reloaded = new Chat({ id: "approved", messages: await read("approved") });
    await reloaded.resumeStream();
    const waiting = shape(reloaded.lastMessage);
    await chat.approve();
    return { waiting, shape: shape(chat.lastMessage), tools: chat.tools.map(({ input, output }) => [input, output]), count: chat.messages.length, ends: chat.seen.ends, called: chat.seen.tools, errors: chat.seen.errors };
  },
  async denied() {  // while another message stands behind the turn that waits
    const chat = new Chat({ id: "denied" });
    await chat.sendMessage({ text: "pay too much" });
    await chat.sendMessage({ text: "then that" });
    const behind = shape(chat.lastMessage);
    const { approval } = chat.messages[1].parts.find((part) => part.state === "approval-requested");
    await chat.addToolApprovalResponse({ id: approval.id, approved: false, reason: "too much" });
    await chat.sendMessage();
    await chat.until(() => chat.status === "ready");
    const denied = shape(chat.messages[1]);
    const again = JSON.stringify({ id: "denied", message: chat.messages[2] });  // posted again, it is the same turn
    const next = await (await fetch(api, { method: "POST", body: again })).text();
    return { behind, shape: denied, isNext: next.includes("That."), errors: chat.seen.errors };
  },
  async branches() {
    const chat = new Chat({ id: "branches" });
    const texts = [];
    const send = async (chat, sent) => { await sent; texts.push(chat.text); };
    await send(chat, chat.sendMessage({ text: "colour one" }));
    await send(chat, chat.sendMessage({ text: "colour two" }));
    const older = new Chat({ id: "branches", messages: chat.messages });
    await send(chat, chat.regenerate());
    await send(chat, chat.regenerate());
    await send(chat, chat.sendMessage({ text: "colour three", messageId: chat.messages[2].id }));
    const reloaded = new Chat({ id: "branches", messages: await read("branches") });
    await send(reloaded, reloaded.sendMessage({ text: "colour four" }));
    await send(reloaded, reloaded.regenerate({ messageId: reloaded.messages[1].id }));
    await send(older, older.sendMessage({ text: "colour five" }));
    await reloaded.sendMessage({ text: "pay or not" });
    const stored = await read("branches");
    const resumed = new Chat({ id: "branches", messages: stored });
    await resumed.resumeStream();
    await resumed.approve();
    const alone = await fetch(api, { method: "POST", body: JSON.stringify({ id: "branches", message: stored[0], trigger: "regenerate-message" }) });
    return { texts, stored: stored.map(({ parts }) => parts[0].text), resumed: resumed.text, ends: chat.seen.ends, errors: [chat, reloaded, older, resumed].flatMap(({ seen }) => seen.errors), counts: [chat, reloaded, resumed].map(({ messages }) => messages.length), alone: [alone.status, await alone.text()] };
  },
  async cut() {
    const chat = new Chat({ id: "cut" });
    const sent = chat.sendMessage({ text: "long story" });
    await chat.until(() => chat.messages.length === 2 && chat.text.length > 20);
    await chat.stop();
    await sent;
    const begun = chat.text;
    const reloaded = new Chat({ id: "cut", messages: await read("cut") });
    await Promise.all([chat.resumeStream(), reloaded.resumeStream()]);
    return { begun, text: chat.text, same: JSON.stringify(chat.lastMessage) === JSON.stringify(reloaded.lastMessage), ends: chat.seen.ends, again: (await fetch(`${api}/cut/stream`)).status };
  },
  async stopped() {
    const chat = new Chat({ id: "stopped" });
    const sent = chat.sendMessage({ text: "endless story" });
    await chat.until(() => chat.messages.length === 2 && chat.text.length > 20);
    const { status } = await fetch(`${api}/stopped/stop`, { method: "POST" });
    await sent;
    return { status, ends: chat.seen.ends, errors: chat.seen.errors, again: (await fetch(`${api}/stopped/stop`, { method: "POST" })).status };
  },
  async refused() {
    const chat = new Chat({ id: "refused", transport: { body: { colour: 3 } } });
    await chat.sendMessage({ text: "hi" });
    const failed = new Chat({ id: "failed" });
    await failed.sendMessage({ text: "fail now" });
    await failed.sendMessage({ text: "fail now, please" });
    return { errors: chat.seen.errors, failed: failed.seen.errors, text: failed.text };
  },
};

const late = (name) => new Promise((_, fail) => setTimeout(() => fail(new Error(`${name} takes too long`)), 60_000).unref());
const run = async ([name, test]) => [name, await Promise.race([test(), late(name)]).catch((error) => ({ failed: error.stack }))];
console.log(JSON.stringify(Object.fromEntries(await Promise.all(Object.entries(cases).map(run)))));
process.exit();
