"""What must be true besides of a host that encrypts, redacts, counts or knows owners, whatever was killed meanwhile."""

import base64
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from durable_agent_host.durable.turn_data_cleanup import CLEANUP_ORCHESTRATION
from tests.durable_agent_host.crash import clients
from tests.durable_agent_host.crash.oracle import Figures, Told, Witnesses, check_case, check_site, read_told
from tests.durable_agent_host.crash.scenarios import Case
from tests.durable_agent_host.crash.site import Site
from tests.durable_agent_host.stored_bytes import read_all_bytes
from tests.kit import PracticeModel
from tests.processes import wait_until

CANARY = " canary.crash@example.com"
"""Said by users, model and tools in every turn."""
SINGLE = ("encryption", "redaction", "budgets", "owners")
ALL = frozenset(SINGLE)
FORGET_SECONDS = 300
"""How long the deletion of what ended turns have left may take: it begins 10 s after their end."""
KEYS = {"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"test={base64.b64encode(bytes(32)).decode()}"}
OWNER, STRANGER = {"x-caller": "ann"}, {"x-caller": "bob"}


def featured_site(
    folder: Path, model: PracticeModel, features: Iterable[str], crash: dict[str, str] | None = None
) -> Site:
    """Start a host with features, whose users, model and tools say the canary."""
    chosen = frozenset(features)
    env, headers = KEYS if "encryption" in chosen else {}, OWNER if "owners" in chosen else {}
    return Site(folder, model, crash=crash or {}, env=env, features=chosen, canary=CANARY, headers=headers)


class Undisturbed:
    """What scenarios tell when nothing is killed, with the canary and without it; each is played once.

    Args:
        folder: for the hosts' data.
        model: the practice model.
    """

    def __init__(self, folder: Path, model: PracticeModel) -> None:
        self._folder, self._model = folder, model
        self._told: dict[tuple[str, bool], Told] = {}

    def play(self, names: Iterable[str], features: frozenset[str]) -> dict[str, Told]:
        """Play what was not played yet; gives what each scenario tells.

        A host that encrypts, counts or knows owners tells what one does that does none of it.
        """
        is_redacted, wanted = "redaction" in features, sorted(set(names))
        if missing := [name for name in wanted if (name, is_redacted) not in self._told]:
            folder = self._folder / f"undisturbed-{len(self._told)}"
            site = featured_site(folder, self._model, {"redaction"} & features)
            try:
                for name in missing:
                    self._told[name, is_redacted] = read_told(Case(site, name).run())
                assert is_redacted or CANARY.strip().encode() in read_all_bytes(site.data), "the search finds nothing"
            finally:
                site.close()
        return {name: self._told[name, is_redacted] for name in wanted}


def check_featured(case: Case, undisturbed: Told, figures: Figures) -> None:
    """Hold a case against the same scenario undisturbed, and look for what its features must not leave."""
    site, witnesses = case.site, Witnesses.hear(case.site)
    check_case(case, undisturbed, witnesses, figures)
    if "budgets" in site.features:
        check_spent(case, witnesses)
    if "owners" in site.features:
        check_strangers(case)
    if "redaction" in site.features:
        await_forgotten(site)
        for asked in case.asked:
            assert clients.read_turn(site, asked)["response"] == asked.answer.get("response", None)
    check_site(site)
    assert (CANARY.strip() in repr(site.model.requests())) is True
    if site.features & {"encryption", "redaction"}:
        check_nowhere(site)


def check_spent(case: Case, witnesses: Witnesses) -> None:
    """Turns add up to their session, and what is counted is what was done, or was in flight at a kill."""
    session = case.site.ask("GET", case.path).json()
    views = [clients.read_turn(case.site, asked)["spent"] for asked in case.asked]
    for kind in ("tokens", "model_calls", "tool_calls"):
        assert session["spent"][kind] == sum(view[kind] for view in views), (kind, session["spent"], views)
    assert abs(session["spent"]["cost"] - sum(view["cost"] for view in views)) < 1e-9
    kills = len(witnesses.kills)
    for turn, spent in enumerate(views):
        mark = case.mark(turn)
        made, lines = len(witnesses.calls[mark]), len(witnesses.effects.get(mark, []))
        asked = sum(len(step.get("calls", [])) for step in case.steps[turn][: case.rounds(turn)])
        assert made <= spent["model_calls"] <= made + kills, (mark, made, spent)
        assert lines <= spent["tool_calls"] <= asked * (1 + kills), (mark, lines, asked, spent)
        assert spent["tokens"] > 0


def check_strangers(case: Case) -> None:
    """For somebody else there is no such session and no such turn; for nobody there is nothing."""
    site = case.site
    for path in (case.path, clients.turn_path(case.asked[0]), clients.turn_path(case.asked[0], "/events")):
        assert site.ask("GET", path, headers=STRANGER).status_code == 404
    assert site.ask("GET", case.path, headers={"x-caller": ""}).status_code == 403


def await_forgotten(site: Site) -> None:
    """Wait until what ended turns have left is deleted."""
    end = time.monotonic() + FORGET_SECONDS
    while any(one["name"] == CLEANUP_ORCHESTRATION for one in running(site)):
        site.check()
        assert time.monotonic() < end, running(site)
        time.sleep(0.5)


def running(site: Site) -> list[dict[str, Any]]:
    """List what has not ended."""
    return site.instances(runtimeStatus="Running,Pending,Suspended")


def check_nowhere(site: Site) -> None:
    """The canary is soon in no file of the host, and in no line that it has written."""
    needle = CANARY.strip()

    def files() -> list[Path]:
        paths = sorted(path for path in site.data.rglob("*") if path.is_file())
        return [path for path in paths if needle.encode() in path.read_bytes()]

    wait_until(lambda: files() == [])
    assert needle.encode() not in read_all_bytes(site.data)
    assert needle not in "".join(site.output)
