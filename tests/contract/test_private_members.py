"""Other packages still have the private names that the project uses."""

import platform
from importlib import metadata

import pytest

from tests.contract.private_members import PrivateMember, describe, private_members, source_digest


@pytest.mark.parametrize("member", private_members(), ids=lambda member: f"{member.path} by {member.user}")
def test_a_private_member_has_not_changed(member: PrivateMember):
    """A package still has the name, with the same parameters; what is overridden without a call has the same source."""
    signature = describe(member.path)
    digest = source_digest(member.path) if signature is not None and member.digest else ""
    assert (signature, digest) == (member.signature, member.digest), _explain(member, signature, digest)


def _explain(member: PrivateMember, signature: str | None, digest: str) -> str:
    if signature is None:
        change = "is gone"
    elif signature != member.signature:
        change = f"was {member.signature!r} and is {signature!r}"
    else:
        change = f"has another source (digest {member.digest!r}, now {digest!r})"
    is_python = member.package == "python"
    installed_version = platform.python_version() if is_python else metadata.version(member.package)
    return (
        f"{member.path} {change}: checked against {member.package} {member.version}, installed {installed_version}. "
        f"{member.user} uses it ({member.reason}): adapt it, then correct the row in tests/contract/private_members.md"
    )
