import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses as hasApprovals,
  lastAssistantMessageIsCompleteWithToolCalls as hasResults,
} from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const api = "/api/ai/Helper";
const id = (sessionStorage.chat ??= crypto.randomUUID()); // a reloaded page comes back to it
const client_tools = [{ name: "locate", description: "Where the user is." }];
const read = async () => (await (await fetch(`${api}/${id}`)).json()).messages;
const stored = await read();

function Chat() {
  const [edited, setEdited] = useState();
  const chat = useChat({
    id,
    messages: stored,
    resume: true,
    transport: new DefaultChatTransport({ api, body: { client_tools } }),
    sendAutomaticallyWhen: (options) => hasApprovals(options) || hasResults(options),
    onToolCall: ({ toolCall: { toolName, toolCallId } }) => {
      const output = { zone: Intl.DateTimeFormat().resolvedOptions().timeZone };
      if (toolName === "locate") chat.addToolOutput({ tool: toolName, toolCallId, output });
    },
    onFinish: ({ finishReason, isError }) => finishReason || isError || comeBack(), // else the stream was cut
  });
  const comeBack = async () => {
    chat.setMessages(await read().catch(() => chat.messages)); // a turn that has ended meanwhile is not streamed again
    chat.resumeStream();
  };
  const isBusy = chat.status === "submitted" || chat.status === "streaming";
  // a message that is sent while a call waits stands behind it, and the approval is no longer in the last message
  const isWaiting = chat.messages.some(({ parts }) => parts.some((part) => part.state === "approval-requested"));

  const send = (form) => {
    chat.sendMessage({ text: form.get("text"), messageId: edited?.id });
    setEdited();
  };

  return (
    <>
      {chat.messages.map((message) => message.role === "user"
        ? <p key={message.id}><b>{textOf(message)}</b> <button onClick={() => setEdited(message)}>Edit</button></p>
        : message.parts.map((part, index) => (
          <Part key={`${message.id} ${index}`} part={part} onApproval={chat.addToolApprovalResponse} />
        )))}
      <form action={send}>
        <input key={edited?.id} name="text" size="60" aria-label="message" placeholder="Tell me a story" defaultValue={edited && textOf(edited)} disabled={isWaiting} autoFocus />{" "}
        <button disabled={isWaiting}>{edited ? "Send again" : "Send"}</button>{" "}
        {isBusy
          ? <button type="button" onClick={() => fetch(`${api}/${id}/stop`, { method: "POST" })}>Stop</button>
          : <button type="button" disabled={isWaiting || !chat.messages.length} onClick={() => chat.regenerate()}>Another answer</button>}
      </form>
      <p id="state">{chat.status}</p>
      {chat.error && <p>{chat.error.message} <button onClick={comeBack}>Come back</button></p>}
    </>
  );
}

const textOf = ({ parts }) => parts.map((part) => part.text).join("");

function Part({ part, onApproval }) {
  if (part.type === "text") return <p style={{ whiteSpace: "pre-wrap" }}>{part.text}</p>;
  if (part.type === "reasoning") return <p><i>{part.text}</i></p>;
  if (part.type !== "dynamic-tool") return null;
  return (
    <p>
      {part.toolName}({JSON.stringify(part.input)}): {JSON.stringify(part.output) ?? part.errorText ?? part.state}{" "}
      {part.state === "approval-requested" && <>
        <button onClick={() => onApproval({ id: part.approval.id, approved: true })}>Approve</button>{" "}
        <button onClick={() => onApproval({ id: part.approval.id, approved: false })}>Deny</button>
      </>}
    </p>
  );
}

createRoot(document.getElementById("chat")).render(<Chat />);
