"""An MCP server over stdio that speaks only an earlier version of the protocol, in which it sends its own requests.

`python older_server.py LEDGER`. Its tool asks two questions, and writes to the ledger what it was told.
"""

import json
import sys
from pathlib import Path
from typing import Any

ledger = Path(sys.argv[1])
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOOL = {"name": "order", "inputSchema": {"type": "object", "properties": {"dish": {"type": "string"}}}}


def send(**message: Any) -> None:
    """Send a message."""
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def read() -> dict[str, Any]:
    """Read the next message."""
    return json.loads(sys.stdin.readline())


def ask(text: str) -> dict[str, Any]:
    """Ask a question; gives the answer."""
    params = {"mode": "form", "message": text, "requestedSchema": SCHEMA}
    send(id=text, method="elicitation/create", params=params)
    while (reply := read()).get("id") != text:
        pass
    return reply.get("result") or {"action": "refused"}


def order(dish: str) -> str:
    """Order a dish."""
    replies = [ask(f"How many plates of {dish}?"), ask("At which table?")]
    told = " ".join(f"{reply['action']} {(reply.get('content') or {}).get('count', '-')}" for reply in replies)
    with ledger.open("a") as file:
        file.write(f"{dish}: {told}\n")
    return told


while line := sys.stdin.readline():
    request = json.loads(line)
    match request.get("method"):
        case "initialize":
            info = {"name": "older", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            send(id=request["id"], result=result)
        case "tools/list":
            send(id=request["id"], result={"tools": [TOOL]})
        case "tools/call":
            text = order(request["params"]["arguments"]["dish"])
            send(id=request["id"], result={"content": [{"type": "text", "text": text}]})
        case "ping":
            send(id=request["id"], result={})
        case method if "id" in request:
            send(id=request["id"], error={"code": -32601, "message": f"no method {method}"})
        case _:
            pass
