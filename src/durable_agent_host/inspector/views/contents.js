// Contents: a row for each type that has a look of its own; others are shown as they are stored

const own = (content) => content.extensionData?.durableAgentHost ?? {};

const VIEWS = {
  text: (one, messages, role) => [role === "assistant" ? answerView(one.text ?? "") : el("div", { class: "text" }, long(one.text ?? "")), citations(own(one).annotations)],
  reasoning: (one) => (one.text ? el("details", { class: "reasoning", open: true }, el("summary", {}, "Reasoning"), el("div", { class: "text" }, long(one.text))) : el("div", { class: "reasoning" }, "Reasoning, which the provider does not show")),
  data: (one) => picture(one.uri, one.mediaType, own(one).name),
  uri: (one) => el("div", {}, link(one.uri ?? "", one.uri), ` ${plain(one.mediaType)}`),
  error: (one) => el("p", { class: "note bad" }, [one.errorCode, one.message, one.details].filter(Boolean).join(": ")),
  functionCall: (one, messages) => toolView(one.name, one.callId, one.arguments, resultOf(one.callId, messages)),
  functionResult: (one, messages) => (hasCall(one.callId, messages) ? null : block(`Result of ${one.callId}`, pretty(one.result))),
  hostedFile: (one) => fileView(one.fileId, own(one).name),
  hostedVectorStore: (one) => block("Vector store", one.vectorStoreId ?? ""),
  usage: () => null,
};

function contentView(content, messages, role) {
  const type = content.$type ?? "";
  if (VIEWS[type]) return wrap(VIEWS[type](content, messages, role));
  return neutralView(content.content ?? content);
}

const wrap = (made) => (Array.isArray(made) ? el("div", {}, made) : made);

// The pages that a search has found; null for anything else.
const pages = (value) =>
  Array.isArray(value) && value.length && value.every((page) => page?.url)
    ? el("div", {}, value.map((page) => el("div", {}, link(page.title ?? page.url, page.url))))
    : null;

// What providers' own tools have done, in the framework's neutral words.
function neutralView(one) {
  const type = one.type ?? "content";
  if (type === "text") return preformatted(one.text ?? "");
  if (type === "uri") return el("div", {}, link(one.name ?? one.uri ?? "", one.uri));
  if (type === "data") return picture(one.uri, one.media_type, one.name);
  if (type === "hosted_file") return fileView(one.file_id, one.name);
  if (type === "error") return el("p", { class: "note bad" }, one.message ?? pretty(one));
  const inputs = [...(one.inputs ?? []).map((input) => input.text ?? pretty(input)), ...(one.commands ?? [])];
  const outputs = Array.isArray(one.outputs) ? one.outputs : one.outputs ? [one.outputs] : [];
  if (type.endsWith("_call")) {
    const shown = inputs.length ? inputs.join("\n") : one.arguments !== undefined ? pretty(one.arguments) : "";
    return block(`${words(type)} ${one.tool_name ?? one.name ?? ""}`, shown, one.status);
  }
  if (type.endsWith("_result")) {
    const parts = outputs.map((output) => (typeof output === "object" && output !== null ? outputView(output) : preformatted(String(output))));
    const value = one.output ?? one.result?.action?.sources ?? one.result ?? one.additional_properties?.error;
    const text = value == null || outputs.length ? [] : [pages(value) ?? preformatted(pretty(value))];
    return el("details", { class: "block", open: true }, el("summary", {}, words(type)), el("div", { class: "inner" }, parts.length + text.length ? [parts, text] : el("span", { class: "muted" }, "no output was kept")));
  }
  return block(words(type), pretty(one));
}

function outputView(output) {
  if (output.stdout || output.stderr || output.exit_code) return preformatted([output.stdout, output.stderr, output.exit_code ? `exit code ${output.exit_code}` : ""].filter(Boolean).join("\n"));
  return neutralView(output);
}

function block(caption, text, status) {
  return el("details", { class: "block", open: text.length < 4000 }, el("summary", {}, plain(caption), " ", status ? state(status) : ""), preformatted(text));
}

function picture(uri, type, name) {
  if (typeof uri === "string" && /^data:image\/(png|jpeg|gif|webp);base64,[a-z0-9+/=]+$/i.test(uri)) return el("img", { src: uri, alt: "image in the conversation", loading: "lazy" });
  const comma = String(uri ?? "").indexOf(",");
  if (!/^data:[^,]*;base64$/i.test(String(uri ?? "").slice(0, comma))) return block(`Data ${type ?? ""}`, String(uri ?? "").slice(0, 200));
  const text = uri.slice(comma + 1), size = Math.floor((text.replace(/=+$/, "").length * 3) / 4);
  const bytes = () => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return el("div", { class: "row" }, el("span", {}, `File ${plain(name)} `, el("span", { class: "muted" }, `${plain(type)}, ${size.toLocaleString()} bytes`)), button("Download", guarded(() => save(bytes(), name || "file")), "quiet"));
}

function citations(annotations) {
  if (!Array.isArray(annotations) || annotations.length === 0) return null;
  const shown = annotations.map((one) => el("li", {}, link(String(one.title || one.url || one.file_id || "source"), one.url), one.file_id ? el("span", { class: "muted" }, ` ${plain(one.file_id)}`) : null));
  return el("details", { class: "block" }, el("summary", {}, `${annotations.length} ${annotations.length === 1 ? "citation" : "citations"}`), el("ul", {}, shown));
}

function fileView(id, name) {
  return el("div", { class: "row" }, el("span", {}, `File ${plain(name || id)}`), button("Download", guarded(() => download(`${sessionPath(at.agent, at.session)}/files/${part(id)}`, name || id)), "quiet"));
}

// A file that a hosted call has made: one of the session, or elsewhere on the web.
const madeFile = (file) => (file.id ? fileView(file.id, file.name) : el("div", {}, link(file.name ?? file.file_url, file.file_url)));

const resultOf = (id, messages) => messages.flatMap((one) => one.contents ?? []).find((one) => one.$type === "functionResult" && one.callId === id);
const hasCall = (id, messages) => messages.some((one) => (one.contents ?? []).some((content) => content.$type === "functionCall" && content.callId === id));

function toolView(name, id, given, result) {
  const shown = [el("summary", {}, el("b", {}, plain(name ?? "tool")), " ", el("span", {}, plain(id))), preformatted(plainLines(pretty(given ?? "")), "Arguments")];
  if (result) shown.push(preformatted(pretty(result.result ?? own(result).items ?? ""), "Result"));
  return el("details", { class: "block", open: true }, shown);
}

async function download(path, name) {
  save(await (await call("GET", path)).arrayBuffer(), name);
}

// Whatever it says it is, it is saved and not opened.
function save(bytes, name) {
  const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  el("a", { href: url, download: String(name).replace(UNSEEN, "").replace(/[\/\\]/g, "_") || "file" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
