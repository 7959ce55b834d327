"""Make the fixture with the code of an older checkout; `README.md` says how, and what is in it."""

import argparse
import contextlib
import json
import lzma
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kit_services import turn_log_of
from tests.processes import Server
from tests.replay.first_house.play import (
    ELSEWHERE,
    EMBEDDED,
    FILES,
    SETTINGS,
    UPSTREAM,
    Play,
    Site,
    break_off,
    by_mark,
    carry_on,
    fork,
    is_waiting,
    ledger,
    look,
    mark,
    one_after_the_other,
    prepare,
    settle,
    wait_until,
)
from tests.replay.first_house.stores import dump

HERE = Path(__file__).resolve().parent
APPS = HERE.parents[1] / "durable_agent_host" / "apps"


@contextlib.contextmanager
def process(checkout: Path, *arguments: str, **env: str) -> Iterator[str]:
    """Run a module of the checkout until the block ends, by SIGKILL; gives the URL that it prints."""
    names = ("OPENAI_", "AZURE_OPENAI_", "DURABLE_AGENT_HOST_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    inherited["PYTHONPATH"] = str(checkout / "src")
    command = [str(checkout / ".venv" / "bin" / "python"), "-m", *arguments]
    with Server(*command, env=inherited | env) as running:
        yield running.url


@contextlib.contextmanager
def site(
    checkout: Path, folder: Path, play: Play, *, app: str = "first_house", again: bool = False, **env: str
) -> Iterator[Site]:
    """Run a new practice model, and a host on a folder, until the block ends; both die of SIGKILL."""
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    with process(checkout, "practice_model", "--port", "0") as model:
        if again:
            prepare(Site("", model), play)
        settings = {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": model, "OPENAI_MODEL": "practice"}
        settings |= {"FIRST_HOUSE": str(folder / FILES)} | SETTINGS | env
        data = ["--app", str(APPS / app), "--port", "0", "--data", str(folder / "data")]
        with process(checkout, "functions_host", "start", *data, **settings) as url:
            yield Site(url, model)


def begin(host: Site, folder: Path, play: Play) -> dict[str, Any]:
    """Play the first part, up to the kill; gives what the sessions look like."""
    turns: dict[str, list[str]] = {}
    for (agent, session), turn_id in settle(host, play):
        turns.setdefault(f"{agent}/{session}", []).append(turn_id)
    for (agent, session), (origin, number) in play.forks.items():
        at = {} if number is None else {"at_turn": turns[f"{agent}/{origin}"][number - 1]}
        fork(host, agent, origin, session, **at)
    ids = break_off(host, play)
    await_the_middle(host, folder, play)
    return {"turns": turns, "under_way": ids} | look(host, play, turns)


def await_the_middle(host: Site, folder: Path, play: Play) -> None:
    """Wait until every turn that is to be cut off is in its last model call, or in its tools."""
    in_tools = {"cut-tool": 3, "cut-asked": 2}
    calls = {f"[{session}/0]": 1 if session in in_tools else len(steps) for (_, session), steps in play.cut.items()}

    def missing() -> list[str]:
        found, lines = by_mark(host.received()), ledger(folder / FILES)
        late = [name for name, count in calls.items() if len(found.get(name, [])) != count]
        return late + [
            session for _, session in play.cut if sum(session in line for line in lines) < in_tools.get(session, 0)
        ]

    wait_until(lambda: not missing())
    for agent, session in play.with_a_person:
        wait_until(lambda agent=agent, session=session: is_waiting(host, agent, session))
    time.sleep(2)  # for what is written soon after it has happened


def make_embedded(checkout: Path, folder: Path) -> None:
    """Make what is stored in files beside the host, with a session of upstream's own host class in it."""
    with site(checkout, folder, EMBEDDED, app="first_house_upstream") as host:
        host.plan("[upstream/0]", one_after_the_other("upstream"))
        assert host.run(*UPSTREAM, mark(UPSTREAM[1], 0)).ok
    with site(checkout, folder, EMBEDDED) as host:
        before = begin(host, folder, EMBEDDED)
    pack(folder, HERE / "embedded.tar.xz")
    with site(checkout, folder, EMBEDDED, again=True) as host:
        after = carry_on(host, EMBEDDED, before["under_way"])
    write("embedded", before, after | {"ledger": ledger(folder / FILES)})


def make_elsewhere(checkout: Path, folder: Path, kind: str) -> None:
    """Make what is stored when the turn log is in a server."""
    (folder / "first").mkdir(parents=True)
    with turn_log_of(kind, folder) as env:
        with site(checkout, folder / "first", ELSEWHERE, **env) as host:
            before = begin(host, folder / "first", ELSEWHERE)
        stored = dump(kind, env)
        (folder / "first" / "store.json").write_text(json.dumps(stored, indent=1))
        pack(folder / "first", HERE / f"{kind}.tar.xz")
        with site(checkout, folder / "first", ELSEWHERE, again=True, **env) as host:
            after = carry_on(host, ELSEWHERE, before["under_way"])
    write(kind, before, after | {"ledger": ledger(folder / "first" / FILES)})


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder, without who made a file, and when."""

    def bare(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz") as packed:
        packed.add(folder, ".", filter=bare)


def write(kind: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Write what the sessions looked like before the kill, and what came of them."""
    for name, value in (("before", before), ("after", after)):
        text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        (HERE / f"{kind}-{name}.json.xz").write_bytes(lzma.compress(text.encode()))


def main() -> None:
    """Make the fixture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout with its .venv, whose code writes the fixture")
    checkout = parser.parse_args().checkout.resolve()
    with tempfile.TemporaryDirectory() as name:
        make_embedded(checkout, Path(name) / "embedded")
        for kind in ("redis", "blob"):
            make_elsewhere(checkout, Path(name) / kind, kind)


if __name__ == "__main__":
    main()
