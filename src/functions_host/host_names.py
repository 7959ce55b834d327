"""The host names that the host accepts.

Theory of operation: two checks keep foreign web pages away from a developer's machine. DNS rebinding turns a foreign
page into one of the same origin, so every route refuses requests with a foreign ``Host`` (`HostNames`). And browsers
send simple cross-origin requests without a preflight, but name the page in ``Origin``, except for GETs of links and
images, whose answer the page cannot read; `web.foreign_pages` refuses an origin that is not listed.

Source: Fetch standard, section 3.2 (Origin); RFC 9110, section 7.2 (Host) and 15.5.20 (421).
"""

import ipaddress
import logging
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Scope

from functions_host.errors import StartupError

_logger = logging.getLogger(__name__)

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


def split_authority(text: str) -> tuple[str, str] | None:
    """Split ``name:port`` into the lower-case name without brackets and the port; None if malformed."""
    found = _AUTHORITY.fullmatch(text)
    return (found[1].strip("[]").rstrip(".").lower(), found[2] or "") if found else None


def check_names(names: Iterable[str]) -> None:
    """Check host names given by the user.

    Raises:
        StartupError: a name is malformed.
    """
    for name in names:
        if name.strip() == "*":
            _logger.warning(
                "The host answers to any name, so web pages of strangers can reach it by DNS rebinding; "
                "name the hosts with --allow-host or Host.AllowedHosts instead."
            )
        elif not _NAME.fullmatch(name.strip()):
            raise StartupError(
                f"{name!r} is no host name; give --allow-host or Host.AllowedHosts names such as app.example.com "
                "or *.example.com, without scheme and port."
            )


class HostNames:
    """The names that the host accepts.

    Args:
        origin: that the host shows by default.
        listens_on: its listening address or name.
        more: additional names; ``*.example.com`` matches its subdomains, ``*`` any name.
    """

    def __init__(self, origin: str, listens_on: str = "", more: Iterable[str] = ()) -> None:
        self._origin = origin
        local_names = {urlsplit(origin).hostname or "", listens_on.lower(), "localhost"}
        self._names = frozenset(local_names - {""}) | {
            name.strip().rstrip(".").lower() for name in more if name.strip()
        }

    def has(self, authority: str, local_address: str = "") -> bool:
        """Return whether a ``Host`` is accepted: a known name, a loopback address, or the connection's own address."""
        parts = split_authority(authority)
        if parts is None:
            return False
        name = parts[0]
        if name in self._names or name.endswith(".localhost") or "*" in self._names:
            return True
        if any(accepted_name.startswith("*.") and name.endswith(accepted_name[1:]) for accepted_name in self._names):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or str(address) == local_address.partition("%")[0]

    def origin_for(self, connection: HTTPConnection) -> str:
        """Return the origin for URLs in an answer: the caller's ``Host`` if accepted, else the default."""
        hosts = connection.headers.getlist("host")
        if len(hosts) == 1 and self.has(hosts[0], local_address(connection.scope)):
            return f"{connection.url.scheme}://{hosts[0]}"
        return self._origin


def local_address(scope: Scope) -> str:
    """Return the address that a client connected to; empty when unknown."""
    server = scope.get("server")
    return str(server[0]) if server else ""
