// A turn that runs: its events, from the first, and again from the last one seen when the connection breaks

function beginLive(turn) {
  if (!talk.live.has(turn)) talk.live.set(turn, new Live(turn));
}

const CANCELLING = "The turn is being cancelled.";

class Live {
  constructor(turn) {
    this.turn = turn;
    this.controller = new AbortController();
    talk.controller.signal.addEventListener("abort", () => this.stop());
    this.last = null;
    this.fragments = [];
    this.hasEnded = false;
    this.status = el("span", { class: "state busy" }, "running");
    this.asked = el("div", { class: "message user", hidden: true });
    this.said = el("div", { class: "message", "aria-live": "off" });
    this.questions = el("div", {});
    this.cancel = button("Cancel", guarded(() => this.stopTurn()), "danger");
    this.answered = new Set();
    this.node = turnFrame(turn, [this.status, el("span", { class: "push" }), compareButton(turn), this.cancel], [this.asked, this.said, this.questions]);
    const box = $("messages");
    box.querySelector(":scope > .empty")?.remove();
    const old = [...box.querySelectorAll(".turn")].find((one) => one.dataset.turn === turn);
    if (old) old.replaceWith(this.node);
    else box.append(this.node);
    this.follow();
    guarded(() => this.look())();
  }

  stop() { this.controller.abort(); }

  async stopTurn() {
    await call("POST", `${turnPath(this.turn)}/cancel`);
    if (!this.hasEnded) notice(CANCELLING);
  }

  async look() {
    const now = await json("GET", turnPath(this.turn), undefined, { signal: this.controller.signal });
    if (now.message && this.asked.hidden) {
      this.asked.hidden = false;
      show(this.asked, el("div", { class: "row" }, el("span", { class: "who" }, "user"), el("span", { class: "push" }), button("Run again with", () => forkHere(this.turn, now.message), "quiet fork")), el("div", { class: "text" }, long(now.message)));
    }
    if (!this.hasEnded) this.tell(now.status);
    this.ask(now.pending_calls ?? []);
  }

  tell(status) {
    this.status.textContent = words(status);
    this.status.className = `state ${STATES[status] ?? "busy"}`;
  }

  // A call is there with its event, before the turn itself says that it waits. Answers that are being written must not
  // be lost: a card stays as long as its call waits.
  ask(pending) {
    const cards = [...this.questions.children];
    for (const one of pending) {
      const id = one.call_id, after = async () => { this.call_answered(one); guarded(readInbox)(); };
      if (!this.hasEnded && !this.answered.has(id) && !cards.some((card) => card.dataset.call === id)) this.questions.append(questionView(`${turnPath(this.turn)}/answers`, one, after));
    }
  }

  async follow() {
    while (!this.hasEnded && !this.controller.signal.aborted) {
      try {
        for await (const event of events(`${turnPath(this.turn)}/events`, this.last, this.controller.signal)) this.take(event);
        if (!this.hasEnded) throw new Error("the stream broke off");
      } catch (error) {
        if (this.controller.signal.aborted) return;
        if (error.status === 404) return void guarded(readNewest)();
        if (error.status === 204) return void guarded(() => this.endAsRead())();
        notice(error.message.startsWith(LOST) ? error.message : `${LOST}, coming back (${error.message})`, true);
        await new Promise((wake) => setTimeout(wake, 500));
      }
    }
  }

  take({ id, name, data }) {
    this.last = id;
    const box = $("messages"), isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 120;
    const taker = this[name.replace(".", "_")];
    if (taker) taker.call(this, data, id);
    else if (name === "turn.completed" || name === "turn.failed" || name === "turn.cancelled") this.end(name, data);
    if (isAtEnd) box.scrollTop = box.scrollHeight;
    if (at.turn === this.turn) laterSteps(name.endsWith(".delta") ? 2000 : 250);
  }

  fragment(id, kind, key, make) {
    const last = this.fragments.at(-1);
    const same = key === null ? (last?.kind === kind ? last : null) : this.fragments.findLast((one) => one.kind === kind && one.key === key && !one.isVoid);
    if (same) return same;
    const made = { kind, key, parts: [], isVoid: false, ...make() };
    this.fragments.push(made);
    this.said.append(made.node);
    return made;
  }

  // Fragments share a node, so a long answer is not a node for each of its words.
  write(fragment, id, text) {
    let node = fragment.parts.at(-1)?.node;
    if (!node || node.length > 4000) fragment.into.append((node = document.createTextNode("")));
    fragment.parts.push({ id, node, from: node.length });
    node.appendData(text);
  }

  message_delta(data, id) {
    const fragment = this.fragment(id, "text", null, () => { const into = el("div", { class: "text answer" }); return { node: into, into }; });
    this.write(fragment, id, data.text);
  }

  reasoning_delta(data, id) {
    const fragment = this.fragment(id, "reasoning", null, () => {
      const into = el("div", { class: "text" });
      return { node: el("details", { class: "reasoning", open: true }, el("summary", {}, "Reasoning"), into), into };
    });
    this.write(fragment, id, data.text);
  }

  tool(call_id, name, given, id) {
    return this.fragment(id, "tool", call_id, () => {
      const into = el("pre", {}), done = el("span", {});
      const shown = given === null || given === undefined ? null : preformatted(plainLines(pretty(given)), "Arguments");
      return { at: id, into, done, node: el("details", { class: "block", open: true }, el("summary", {}, el("b", {}, plain(name)), " ", done), shown, into) };
    });
  }

  tool_started(data, id) { this.tool(data.call_id, data.name, data.arguments, id); }
  tool_delta(data, id) { this.write(this.tool(data.call_id, "tool", null, id), id, data.text); }

  tool_progress(data, id) { this.write(this.tool(data.call_id, "tool", null, id), id, `${data.text}\n`); }

  tool_completed(data, id) {
    const fragment = this.tool(data.call_id, "tool", null, id);
    show(fragment.done, state(data.outcome));
    if (data.arguments) fragment.node.append(preformatted(plainLines(pretty(data.arguments)), "Arguments"));
    fragment.node.append(...(data.files ?? []).map(madeFile));
    if (data.result) fragment.node.append(preformatted(pretty(data.result), "Result"));
  }

  call_pending(call) {
    this.ask([call]);
    this.tell("waiting");
  }

  call_answered({ call_id }) {
    this.answered.add(call_id);
    for (const card of [...this.questions.children]) if (card.dataset.call === call_id) card.remove();
    if (!this.questions.children.length) this.tell("running");
  }

  turn_waiting({ pending_calls: pending }) {
    this.ask(pending);
    this.tell("waiting");
    setTimeout(guarded(findSessions), 600);
    setTimeout(guarded(readInbox), 600);
  }

  turn_queued() { this.tell("queued"); }

  turn_started() { this.tell("running"); }

  turn_restarted({ discard_from }) {
    for (const fragment of this.fragments) {
      for (const one of fragment.parts.filter((part) => part.id >= discard_from)) one.node.data = one.node.data.slice(0, one.from);
      fragment.parts = fragment.parts.filter((one) => one.id < discard_from);
      if (fragment.at >= discard_from || (fragment.parts.length === 0 && fragment.at === undefined)) { fragment.isVoid = true; fragment.node.remove(); }
    }
    this.fragments = this.fragments.filter((one) => !one.isVoid);
    const note = el("p", { class: "note" }, "The process died, the stream broke, or the answer did not fit its format. What the model had said is void, and it is asked again; finished steps are replayed from the journal.");
    this.fragments.push({ kind: "note", key: null, parts: [{ id: -1 }], at: -1, node: note });
    this.said.append(note);
    this.tell("running");
  }

  async endAsRead() {
    const { status, error } = await json("GET", turnPath(this.turn));
    this.end(`turn.${status}`, { detail: error?.message });
  }

  end(name, data) {
    this.hasEnded = true;
    if ($("notice").textContent === CANCELLING) notice("");
    const status = ["incomplete", "refused"].includes(data.status) ? data.status : name.slice("turn.".length);
    this.tell(status);
    this.cancel.remove();
    show(this.questions);
    if (name === "turn.failed") this.said.append(el("p", { class: "note bad" }, data.detail ?? "failed"));
    this.settle();
  }

  // The session is read until it has the turn, too.
  async settle() {
    for (let pause = 120; !this.controller.signal.aborted; pause = Math.min(2 * pause, 2000)) {
      await new Promise((wake) => setTimeout(wake, pause));
      if (this.controller.signal.aborted) break;
      talk.seen = "";
      await guarded(readNewest)();
    }
    laterSteps(0);
    guarded(findSessions)();
  }
}
