"""An MCP server whose tools write to a ledger; over stdio, or over HTTP with a port. A test kills it by its pid.

`python server.py PIDS LEDGER TOOLS [PORT]`: each start adds a line with its pid to PIDS. TOOLS has the names of the
tools that it offers, one a line, when it starts.
"""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

pids, ledger, tools = map(Path, sys.argv[1:4])
tool_names = tools.read_text().split()  # without them, it ends before the imports, which take a second

from mcp.server.mcpserver import Elicit, MCPServer, Resolve  # noqa: E402
from mcp.types import ToolAnnotations  # noqa: E402
from pydantic import BaseModel  # noqa: E402

server = MCPServer("ledger")


def write(line: str) -> None:
    """Write a line to the ledger; it is there when this returns."""
    with ledger.open("a") as file:
        file.write(line + "\n")


def write_text(text: str) -> str:
    """Note a text."""
    write(f"note {text}")
    return f"noted {text}"


def book(room: str) -> str:
    """Book a room, slowly: the ledger has its begin and its end."""
    write(f"begin {room}")
    while (ledger.parent / "slow").exists():
        time.sleep(0.01)
    write(f"end {room}")
    return f"booked {room}"


def inspect(room: str) -> str:
    """Look at a room, as slowly; looking changes nothing."""
    return book(room)


class Seats(BaseModel):
    """How many seats."""

    count: int


async def ask_seats(room: str) -> Elicit[Seats]:
    """Ask how many seats a room needs."""
    return Elicit(f"How many seats in {room}?", Seats)


def reserve(room: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> str:
    """Reserve a room with seats."""
    write(f"reserve {room} {seats.count}")
    return f"reserved {room} with {seats.count}"


READS = ToolAnnotations(readOnlyHint=True)
TOOLS = {
    "note": (write_text, None),
    "book": (book, None),
    "look": (inspect, READS),
    "late": (write_text, None),
    "reserve": (reserve, None),
}
for name in tool_names:
    server.add_tool(TOOLS[name][0], name=name, annotations=TOOLS[name][1])
with pids.open("a") as file:
    file.write(f"{os.getpid()}\n")
if len(sys.argv) > 4:
    server.run("streamable-http", port=int(sys.argv[4]))
else:
    server.run("stdio")
