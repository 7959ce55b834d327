// The page, made of text alone: whatever a model, a tool or a user has said becomes a text node, never HTML.

const $ = (id) => document.getElementById(id);

function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "class") made.className = value;
    else if (name === "value" || name === "checked" || name === "hidden" || name === "open" || name === "disabled") made[name] = value;
    else made.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) made.append(child);
  return made;
}

const button = (text, act, kind = "") => el("button", { type: "button", class: kind, on: { click: act } }, text);
const show = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined));
const pretty = (value) => (typeof value === "string" ? value : plainLines(JSON.stringify(value, null, 2) ?? ""));

// Characters that cannot be seen, or turn the direction of what follows: in a name, they make it look like another one.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const escaped = (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;
const plain = (name) => String(name ?? "").replace(UNSEEN, escaped);
const plainLines = (text) => text.replace(UNSEEN, (one) => (one === "\n" || one === "\t" ? one : escaped(one)));

// Of a long text, what is read is laid out: megabytes in one paragraph would stop the page for many seconds.
const LONG = 20000, MORE = 400000;
function long(text) {
  if (text.length <= LONG) return text;
  let end = LONG;
  const counted = () => `Show more (${end.toLocaleString()} of ${text.length.toLocaleString()} characters)`;
  const copy = button("Copy all", guarded(async () => { await navigator.clipboard.writeText(text); notice("Copied."); }), "quiet");
  const more = button(counted(), () => {
    rest.before(text.slice(end, end + MORE));
    end += MORE;
    end < text.length ? (more.textContent = counted()) : rest.remove();
  });
  const rest = el("span", { class: "rest" }, more, copy);
  return [text.slice(0, LONG), rest];
}

// A text that can be scrolled has to be reached by keys.
const preformatted = (text, label = null) => el("pre", { "aria-label": label, tabindex: text.length > 400 || text.split("\n").length > 15 ? "0" : null }, long(text));

function link(text, address) {
  let url = null;
  try { url = new URL(address); } catch { /* a name, and no address */ }
  if (url === null || !["http:", "https:"].includes(url.protocol)) return el("span", {}, plain(text));
  return el("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer" }, plain(text));
}

function notice(text, isWrong = false) {
  $("notice").textContent = text;
  $("notice").title = text;
  $("notice").className = isWrong ? "wrong" : "";
}

const guarded = (act) => async (...given) => {
  try {
    return await act(...given);
  } catch (error) {
    if (error.name !== "AbortError") notice(error.message, true);
    return undefined;
  }
};

const copyButton = (text) => button("Copy", guarded(async () => { await navigator.clipboard.writeText(text); notice("Copied."); }), "quiet");

const table = (heads, rows) => el("table", {}, el("thead", {}, el("tr", {}, heads.map((one) => el("th", { scope: "col" }, one)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((one) => el("td", {}, one))))));
