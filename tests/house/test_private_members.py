"""Every use of a private name of another package is in the list."""

import re

from tests.contract.private_members import describe, private_members
from tests.house.private_uses import OurClass, Use, calls_super, mixins, patches, private_uses, subclasses
from tests.house.source import is_below, modules

OUR_NAMES = {"_durable_agent_host_is_signal", "_durable_reader", "_reconnecting", "_running_calls"}
"""Names of ours that we set on objects of others."""

MADE_TO_BE_DERIVED = {
    "agent_framework._clients:BaseChatClient",
    "agent_framework._middleware:ChatMiddleware",
    "agent_framework._middleware:FunctionMiddleware",
    "agent_framework._sessions:HistoryProvider",
    "azure.core.pipeline.transport._aiohttp:AioHttpTransport",
    "click.exceptions:ClickException",
    "httpx2:AsyncBaseTransport",
    "starlette.responses:JSONResponse",
    "starlette.responses:StreamingResponse",
}
"""Classes of other packages whose documentation says which methods a subclass writes."""


def _is_listed(use: Use) -> bool:
    return any(
        use.name in {member.name, member.path, member.path.partition(":")[0]}
        and is_below(use.module, member.user.partition(":")[0])
        for member in private_members()
    )


def test_every_private_name_is_listed():
    """A private name, or a replaced one, has a row for the module that uses it."""
    missing = [
        f"{use.location} uses {use.name}: find a public name, or add a row to tests/contract/private_members.md"
        for use in (*private_uses(), *patches())
        if use.name not in OUR_NAMES and not _is_listed(use)
    ]
    assert not missing


def test_every_override_is_listed():
    """A method that hides one of another package has a row, with a digest if it does not call that one."""
    listed_methods = {(member.user, member.name): member for member in private_members() if ":" in member.user}
    wrong = [
        f"{found.name}.{name} overrides {base}.{name}: add a row to tests/contract/private_members.md"
        for found, base in _derived_classes()
        for name in found.methods
        if describe(f"{base}.{name}") is not None and name != "__init__" and (found.name, name) not in listed_methods
    ]
    classes = {found.name: found for found in (*mixins().values(), *(found for found, _ in subclasses()))}
    for (user, name), member in listed_methods.items():
        method = classes[user].methods.get(name) if user in classes else None
        if method is None:
            wrong.append(f"{user} does not override {name}: delete the row of {member.path}")
        elif member.signature != "value" and calls_super(method) is bool(member.digest):
            wrong.append(f"{user}.{name}: a digest in its row says that it does not call the original method")
    assert not wrong


def _derived_classes() -> list[tuple[OurClass, str]]:
    """Classes of ours with the class of another package before which they are put, or from which they derive."""
    bases = {
        member.user: member.path.rpartition(".")[0]
        for member in private_members()
        if ":" in member.user and member.package != "anthropic"
    }
    missing = [name for name, found in mixins().items() if name not in bases and found.methods]
    assert not missing, f"list what these override in tests/contract/private_members.md: {missing}"
    derived = [(found, f"{base.__module__}:{base.__qualname__}") for found, base in subclasses()]
    return [
        *((found, bases[name]) for name, found in mixins().items() if name in bases),
        *((found, base) for found, base in derived if base not in MADE_TO_BE_DERIVED),
    ]


def test_every_row_is_needed():
    """A row whose name occurs nowhere in its module is deleted."""
    unused = [
        f"{member.user} does not use {member.path}: delete the row"
        for member in private_members()
        if not any(re.search(rf"\b{member.name}\b", module.text) for module in modules(member.user.partition(":")[0]))
    ]
    assert not unused
