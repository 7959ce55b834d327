"""Who the caller is, and who owns a session."""

from dataclasses import dataclass, field
from typing import Any, Final

ROLE: Final = "role:"
"""Prefix of a role's name where a role is one of several possible values."""

ANOTHER: Final = "another"
"""Who may approve a tool's call: any principal except the one who requested the turn."""


@dataclass(frozen=True)
class Principal:
    """An identified caller.

    Attributes:
        id: identifies the caller within the tenant; not empty.
        tenant: the caller's; empty when there is only one tenant. The same id in another tenant is another principal.
        roles: the caller's roles, for the app's own ``authorize`` and for answers. They are read in each request, and
            not stored with a session.
    """

    id: str
    tenant: str = ""
    roles: frozenset[str] = field(default_factory=frozenset[str])

    def __post_init__(self) -> None:
        value: Any = (self.id, self.tenant, self.roles)  # from the app, whose types may differ
        if not isinstance(value[0], str) or not value[0]:
            raise ValueError(f"a principal's id is {value[0]!r}: give a text that is not empty")
        if not isinstance(value[1], str):
            raise ValueError(f"a principal's tenant is {value[1]!r}: give a text")  # noqa: TRY004 - as for the others
        if isinstance(value[2], str) or not all(
            isinstance(role, str) for role in value[2]
        ):  # a text would iterate over its letters
            raise ValueError(f"a principal's roles are {value[2]!r}: give a set of texts")
        object.__setattr__(self, "roles", frozenset(value[2]))

    def is_one_of(self, role: str) -> bool:
        """Return whether the principal has a role, given as ``role:NAME``."""
        return role.startswith(ROLE) and role.removeprefix(ROLE) in self.roles

    @property
    def owner(self) -> "Owner":
        """The principal as the owner of sessions."""
        return Owner(self.id, self.tenant)


@dataclass(frozen=True)
class Owner:
    """The owner of a session.

    Attributes:
        principal: the principal's id; empty for the app itself, whose orchestrations act for no caller.
        tenant: the principal's.
    """

    principal: str
    tenant: str = ""


ANONYMOUS: Final = Principal("anonymous")
"""The principal that all callers are who have not been identified, in an app that says so.

Only this object says so: the gate refuses another one with this id and no tenant, because callers may choose names."""

THE_APP: Final = Owner("")
"""The owner of what the app's orchestrations begin for no caller."""
