// Dialogs, and forms in them

function dialog(title, ...children) {
  show($("dialog"), el("div", { class: "body" }, el("h2", { id: "dialog-title" }, title), children));
  if (!$("dialog").open) $("dialog").showModal();
}

const close = () => $("dialog").close();

// A form that stays, with what was written and the reason, until what it asks for is accepted.
function formDialog(title, label, act, ...fields) {
  const wrong = el("p", { class: "note bad", role: "alert", hidden: true }), submit = el("button", { class: "main" }, label);
  const send = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    wrong.hidden = true;
    try { await act(); } catch (error) {
      wrong.hidden = false;
      wrong.textContent = error.message;
    } finally { submit.disabled = false; }
  };
  dialog(title, el("form", { on: { submit: send } }, fields, wrong, el("div", { class: "row" }, submit, button("Cancel", close))));
}

const closing = (...others) => el("div", { class: "row" }, others, el("span", { class: "push" }), button("Close", close));

function askForKey() {
  if ($("dialog").open) return;
  const field = el("input", { type: "password", autocomplete: "off", value: sessionStorage.getItem(KEY) ?? "" });
  const keep = (submit) => {
    submit.preventDefault();
    field.value ? sessionStorage.setItem(KEY, field.value) : sessionStorage.removeItem(KEY);
    close();
    guarded(loadAgents)();
  };
  dialog("Function key", el("form", { on: { submit: keep } },
    el("p", { class: "muted" }, "For an app that asks for a function key: the keys of one on Azure are in the portal, those of a local host in keys.json of its data folder. The key is kept in this tab until you close it, and sent to this app alone."),
    el("label", {}, "Key", field), el("div", { class: "row" }, el("button", { class: "main" }, "Use it"), button("Cancel", close))));
}
