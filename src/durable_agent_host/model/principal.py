"""Who asks, and to whom a session belongs."""

from dataclasses import dataclass, field
from typing import Any, Final

ROLE: Final = "role:"
"""What stands before the name of a role, where a role is one of several things that can be said."""

ANOTHER: Final = "another"
"""Who may answer for a tool's call: anybody but the principal who asked for the turn."""


@dataclass(frozen=True)
class Principal:
    """A caller who has been identified.

    Attributes:
        id: names the caller within the tenant; not empty.
        tenant: to which the caller belongs; empty when there is one tenant alone. The same id in another tenant is
            another principal.
        roles: what the caller is allowed to be, for the app's own ``authorize`` and for approvals. They are looked at
            in each request, and not stored with a session.
    """

    id: str
    tenant: str = ""
    roles: frozenset[str] = field(default_factory=frozenset[str])

    def __post_init__(self) -> None:
        said: Any = (self.id, self.tenant, self.roles)  # by the app, whose types may be others
        if not isinstance(said[0], str) or not said[0]:
            raise ValueError(f"a principal's id is {said[0]!r}: give a text that is not empty")
        if not isinstance(said[1], str):
            raise ValueError(f"a principal's tenant is {said[1]!r}: give a text")  # noqa: TRY004 - as of the others
        if isinstance(said[2], str) or not all(
            isinstance(role, str) for role in said[2]
        ):  # a text has its letters in it
            raise ValueError(f"a principal's roles are {said[2]!r}: give a set of texts")
        object.__setattr__(self, "roles", frozenset(said[2]))

    def is_one_of(self, role: str) -> bool:
        """Tell whether the principal has a role, which is named as ``role:NAME``. Guarantee: pure."""
        return role.startswith(ROLE) and role.removeprefix(ROLE) in self.roles

    @property
    def owner(self) -> "Owner":
        """The principal as the owner of sessions."""
        return Owner(self.id, self.tenant)


@dataclass(frozen=True)
class Owner:
    """To whom a session belongs.

    Attributes:
        principal: the principal's id; empty for the app itself, whose orchestrations say for nobody that they act.
        tenant: the principal's.
    """

    principal: str
    tenant: str = ""


ANONYMOUS: Final = Principal("anonymous")
"""The principal that all callers are who have not been identified, in an app that says so.

Only this object says so: the gate refuses another one with this id and no tenant, because callers may choose names."""

THE_APP: Final = Owner("")
"""The owner of what orchestrations of the app begin for nobody."""
