// Requests as they are typed in a shell

const quoted = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

function curl(method, path, body) {
  const lines = [`curl${method === "GET" ? "" : ` -X ${method}`} ${quoted(location.origin + BASE + path)}`];
  if (sessionStorage.getItem(KEY)) lines.push(`-H "x-functions-key: $FUNCTIONS_KEY"`);
  if (body !== undefined) lines.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

async function curlOfTurn(read) {
  const turn = await json("GET", turnPath(read.turn_id));
  const body = { message: turn.message, session_id: read.session_id, ...(turn.options ? { options: turn.options } : {}) };
  const run = curl("POST", `${agentPath(at.agent)}/run`, body);
  showCurl("This turn", `# ask the same again\n${run}\n\n# its steps\n${curl("GET", `${turnPath(read.turn_id)}/steps`)}\n\n# its events\n${curl("GET", `${turnPath(read.turn_id)}/events`)}`);
}

function showCurl(title, text) {
  const copy = button("Copy", guarded(async () => { await navigator.clipboard.writeText(text); notice("Copied."); close(); }), "main");
  dialog(`${title} as curl`, el("pre", { tabindex: "0" }, long(text)), closing(copy));
}
