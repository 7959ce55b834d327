// Markdown of an answer, as elements: HTML in it stays text, and an image is a link that loads nothing.
const INLINE = /(`{1,3})([^`]+)\1|\*\*([^*\n]+)\*\*|\*([^\s*][^*\n]*)\*|(?<!\w)_([^\s_][^_\n]*)_(?!\w)|~~([^~\n]+)~~|!?\[([^\]\n]{1,500})\]\(((?:[^()\s]|\([^()\s]{0,200}\)){1,2000})\)|(https?:\/\/[^\s<>()\[\]]{1,2000})/g;

function inline(text) {
  const made = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, , code, strong, em, em2, gone, name, address, bare] = found;
    made.push(text.slice(end, found.index));
    end = found.index + whole.length;
    if (code !== undefined) made.push(el("code", {}, code));
    else if (strong !== undefined) made.push(el("strong", {}, inline(strong)));
    else if (em !== undefined || em2 !== undefined) made.push(el("em", {}, inline(em ?? em2)));
    else if (gone !== undefined) made.push(el("del", {}, inline(gone)));
    else made.push(link(name ?? bare, address ?? bare));
  }
  return [...made, text.slice(end)];
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((one) => one.trim());

function listOf(lines) {
  const root = { indent: -1, items: [] }, open = [root];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (!item) { open.at(-1).text += `\n${line.trim()}`; continue; }
    const one = { indent: item[1].length, isOrdered: /\d/.test(item[2]), start: parseInt(item[2], 10), text: item[3], items: [] };
    while (open.at(-1).indent >= one.indent) open.pop();
    if (open.length < 20) open.at(-1).items.push(one), open.push(one);
    else open.at(-1).text += `\n${line}`;
  }
  const build = (items) => (items.length ? el(items[0].isOrdered ? "ol" : "ul", items[0].isOrdered ? { start: items[0].start } : {}, items.map((one) => el("li", {}, inline(one.text), build(one.items)))) : null);
  return build(root.items);
}

function markdown(text) {
  if (text.length > LONG) return long(text);
  const lines = text.split("\n"), made = [];
  const take = (isPart) => { const taken = []; while (lines.length && isPart(lines[0])) taken.push(lines.shift()); return taken; };
  const begins = (line) => /^\s*(```|~~~)|^#{1,6}\s|^\s*>|^\s*([-*_])(\s*\2){2,}\s*$/.test(line) || ITEM.test(line);
  while (lines.length) {
    const line = lines[0], fence = /^\s*(```+|~~~+)\s*(\S*)/.exec(line), heading = /^(#{1,6})\s+(.*?)\s*#*\s*$/.exec(line);
    if (!line.trim()) lines.shift();
    else if (fence) {
      lines.shift();
      const code = take((one) => !one.trim().startsWith(fence[1]));
      lines.shift();
      made.push(el("pre", { tabindex: "0", "aria-label": `Code ${plain(fence[2])}` }, el("code", {}, code.join("\n"))));
    } else if (heading) made.push(el("h3", { class: heading[1].length === 1 ? "first" : "" }, inline(lines.shift() && heading[2])));
    else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) made.push(el("hr", {}), lines.shift() && "");
    else if (/^\s*>/.test(line)) made.push(el("blockquote", {}, el("p", {}, inline(take((one) => /^\s*>/.test(one)).map((one) => one.replace(/^\s*> ?/, "")).join("\n")))));
    else if (ITEM.test(line)) made.push(listOf(take((one) => ITEM.test(one) || /^\s+\S/.test(one))));
    else if (line.includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[1] ?? "") && lines[1].includes("|")) {
      const [head, , ...rows] = take((one) => one.includes("|"));
      made.push(el("table", {}, el("thead", {}, el("tr", {}, cells(head).map((one) => el("th", { scope: "col" }, inline(one))))), el("tbody", {}, rows.map((row) => el("tr", {}, cells(row).map((one) => el("td", {}, inline(one))))))));
    } else made.push(el("p", {}, inline([lines.shift(), ...take((one) => one.trim() && !begins(one))].join("\n"))));
  }
  return made.filter((one) => one !== null && one !== "");
}

const written = new WeakMap(); // the text of an element with Markdown
function answerView(text) {
  const made = el("div", { class: "md" }, markdown(text));
  written.set(made, text);
  return made;
}
