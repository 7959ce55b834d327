// What is done with a whole session: each is a public route

const changes = (rows) => el("table", {}, el("thead", {}, el("tr", {}, ["Where", "Problem", "Repair"].map((one) => el("th", { scope: "col" }, one)))), el("tbody", {}, rows.map((one) => el("tr", {}, [one.place, one.problem, one.repair].map((text) => el("td", {}, String(text ?? "")))))));

const ACTS = {
  // What the model was sent of it in the chosen turn.
  async agent() {
    const { calls } = at.turn ? await json("GET", `${turnPath(at.turn)}/calls`) : { calls: [] };
    const [first] = calls.filter((one) => one.strategy_call === undefined);
    const body = first ? parsed((await json("GET", `${turnPath(at.turn)}/calls/${part(first.name)}`)).request?.text ?? "") : null;
    if (body === null) return dialog(plain(at.agent), el("p", {}, "No request of the chosen turn is kept: choose another turn."), closing());
    const { instructions, system, systemInstruction, tools, input, messages, contents, ...others } = body;
    const told = requestParts(body).filter((one) => ["system", "developer"].includes(one.role)), all = listed(tools).flatMap((one) => one.functionDeclarations ?? one).map((one) => one.function ?? one.toolSpec ?? one);
    dialog(plain(at.agent), el("p", { class: "muted" }, "As the model was sent it in the chosen turn."),
      el("div", { class: "row" }, el("b", {}, "Model"), el("span", {}, plain(body.model ?? first.url))),
      el("b", {}, "Instructions"), told.length ? told.map((one) => el("pre", { tabindex: "0" }, long(one.text))) : el("span", { class: "muted" }, "none"),
      el("b", {}, "Tools"), all.length ? all.map((one) => el("details", { class: "block" }, el("summary", {}, el("b", {}, plain(one.name ?? one.type)), ` ${plain(one.description)}`), el("pre", { tabindex: "0" }, long(pretty(one.parameters ?? one.input_schema ?? one))))) : el("span", { class: "muted" }, "none"),
      el("details", { class: "block" }, el("summary", {}, "Other settings"), el("pre", { tabindex: "0" }, long(pretty(others)))), closing());
  },
  async rename() {
    const key = titleKey(at.agent, at.session), first = ownTitles()[key] ?? titles.get(key) ?? "", title = el("input", { value: first, maxlength: "120" });
    const save = async () => {
      const all = ownTitles();
      title.value ? (all[key] = title.value) : delete all[key];
      localStorage.setItem(TITLES, JSON.stringify(all));
      titles.delete(key);
      close();
      await readTitle(at.agent, at.session);
      nameTab();
      await findSessions();
    };
    formDialog("Title of this session", "Save", save, el("p", { class: "muted" }, "Kept in this browser alone; without one, the first words are the title."), el("label", {}, "Title", title));
    title.select();
  },
  async files() {
    const { files } = await json("GET", `${sessionPath(at.agent, at.session)}/files`);
    const rows = files.map((one) => {
      const id = one.file_id ?? one.id;
      return el("tr", {}, el("td", {}, plain(one.name ?? id)), el("td", {}, plain(one.media_type)), el("td", {}, one.size === null || one.size === undefined ? "" : `${one.size.toLocaleString()} bytes`), el("td", {}, button("Download", guarded(() => download(`${sessionPath(at.agent, at.session)}/files/${part(id)}`, one.name ?? id)), "quiet")));
    });
    dialog("Files", rows.length ? el("table", {}, el("tbody", {}, rows)) : el("p", {}, "This session has no files."), closing());
  },
  async fork() {
    const made = await json("POST", `${sessionPath(at.agent, at.session)}/fork`, {});
    go(at.agent, made.session_id);
    await findSessions();
    notice(`Forked from ${made.forked_from}.`);
  },
  async verify() {
    const { problems } = await json("GET", `${sessionPath(at.agent, at.session)}/verify`);
    dialog("Verify", problems.length ? [el("p", {}, "Repair would change this:"), changes(problems)] : el("p", {}, "Nothing is wrong: all of it can be read, and every call has its result."), closing(problems.length ? button("Repair", guarded(ACTS.repair), "main") : null));
  },
  async repair() {
    const made = await json("POST", `${sessionPath(at.agent, at.session)}/repair`);
    talk.seen = "";
    const original = made.original_session_id;
    dialog("Repair", made.changes.length ? [el("p", {}, "This was changed:"), changes(made.changes), el("p", {}, "The original is kept as ", el("a", { href: address(at.agent, original), on: { click: close } }, original))] : el("p", {}, "There was nothing to repair, and nothing was changed."), closing());
    await readNewest();
    await findSessions();
  },
  async curl() {
    showCurl("This session", curl("GET", sessionPath(at.agent, at.session)));
  },
  async delete() {
    const session = at.session;
    const erase = guarded(async () => {
      const made = await json("DELETE", sessionPath(at.agent, session));
      close();
      go(at.agent);
      await findSessions();
      notice(made.status === "deleting" ? "The session is being deleted." : "The session was deleted.");
    });
    dialog("Delete this session?", el("p", {}, "The session ", el("b", {}, plain(session)), ", its turns and their logs are erased. This cannot be undone."), el("div", { class: "row" }, button("Delete for ever", erase, "danger"), button("Keep it", close, "main")));
  },
};
