"""What must be true besides of a host that encrypts, redacts, counts or knows owners, whatever was killed meanwhile."""

import base64
from pathlib import Path

from tests.durable_agent_host.crash import clients
from tests.durable_agent_host.crash.oracle import Witnesses
from tests.durable_agent_host.crash.scenarios import Case
from tests.durable_agent_host.crash.site import Site
from tests.durable_agent_host.stored_bytes import read_all_bytes
from tests.kit import PracticeModel
from tests.processes import wait_until

CANARY = " canary.crash@example.com"
"""Said by users, model and tools in every turn."""
SINGLE = ("encryption", "redaction", "budgets", "owners")
KEYS = {"DURABLE_AGENT_HOST_ENCRYPTION_KEYS": f"test={base64.b64encode(bytes(32)).decode()}"}
OWNER, STRANGER = {"x-caller": "ann"}, {"x-caller": "bob"}


def featured_site(
    folder: Path,
    model: PracticeModel,
    features: frozenset[str],
    canary: str,
) -> Site:
    """Start a host with features, whose users, model and tools say the canary."""
    env, headers = KEYS if "encryption" in features else {}, OWNER if "owners" in features else {}
    return Site(folder, model, env=env, features=features, canary=canary, headers=headers)


def check_features(case: Case, witnesses: Witnesses) -> None:
    """Look for what the features of a case's host must not leave."""
    site = case.site
    if "budgets" in site.features:
        check_usage(case, witnesses)
    if "owners" in site.features:
        check_strangers(case)
    if "redaction" in site.features:
        for request in case.requests:
            assert clients.read_turn(site, request)["response"] == request.answer.get("response", None)
    if site.canary:
        assert CANARY.strip() in repr(site.model.requests())
        if site.features & {"encryption", "redaction"}:
            check_nowhere(site)


def check_usage(case: Case, witnesses: Witnesses) -> None:
    """Turns add up to their session, and what is counted is what was done, except for what a kill cut off."""
    session = case.site.ask("GET", case.path).json()
    views = [clients.read_turn(case.site, request)["spent"] for request in case.requests]
    for kind in ("tokens", "model_calls", "tool_calls"):
        assert session["spent"][kind] == sum(view[kind] for view in views), (kind, session["spent"], views)
    kills = len(witnesses.kills)
    for turn, usage in enumerate(views):
        mark = case.mark(turn)
        call_count, lines = len(witnesses.calls[mark]), len(witnesses.effects.get(mark, []))
        taken_steps = [step for steps in case.steps_by_agent(turn).values() for step in steps]
        tool_call_count = sum(len(step.get("calls", [])) for step in taken_steps)
        assert call_count - kills <= usage["model_calls"] <= call_count, (mark, call_count, usage)
        assert lines <= usage["tool_calls"] <= tool_call_count * (1 + kills), (mark, lines, tool_call_count, usage)
        assert usage["tokens"] > 0


def check_strangers(case: Case) -> None:
    """For somebody else there is no such session and no such turn; for nobody there is nothing."""
    site = case.site
    for path in (case.path, clients.turn_path(case.requests[0]), clients.turn_path(case.requests[0], "/events")):
        assert site.ask("GET", path, headers=STRANGER).status_code == 404
    assert site.ask("GET", case.path, headers={"x-caller": ""}).status_code == 403


def check_nowhere(site: Site) -> None:
    """The canary is soon in no file of the host, and in no line that it has written."""
    needle = CANARY.strip()

    def files() -> list[Path]:
        paths = sorted(path for path in site.data.rglob("*") if path.is_file())
        return [path for path in paths if needle.encode() in path.read_bytes()]

    wait_until(lambda: files() == [])
    assert needle.encode() not in read_all_bytes(site.data)
    assert needle not in "".join(site.output)
