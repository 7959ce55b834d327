"""Which web pages may call the host; `host_names` has the theory."""

from collections.abc import Iterable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from functions_host.host_names import HostNames, split_authority
from functions_host.web.problems import problem


class PageRules:
    """Decides which pages may call: those of this host, and those of listed origins.

    Args:
        names: accepted by the host.
        origins: allowed by ``Host.CORS``; ``*`` is any.
    """

    def __init__(self, names: HostNames, origins: Iterable[str] = ()) -> None:
        self._names = names
        self._origins = frozenset(origin.lower() for origin in origins)

    def find_refusal(self, request: Request) -> Response | None:
        """Refuse the request of a page whose origin is foreign and not listed."""
        origin = request.headers.get("origin")
        if origin is None or "*" in self._origins or origin.lower() in self._origins or self._is_own(origin, request):
            return None
        return problem(
            HTTPStatus.FORBIDDEN,
            f"Pages of other origins may not call this ({origin}); list the page's origin under Host.CORS in "
            "local.settings.json to let it.",
        )

    def _is_own(self, origin: str, request: Request) -> bool:
        """Return whether this host served the page, under the called address or another of its names."""
        page, _, authority = origin.partition("://")
        host_header = request.headers.get("host", "").lower()
        parts = split_authority(authority)
        if page not in {"http", "https"} or parts is None:
            return False
        host_and_port = split_authority(host_header)
        port = host_and_port[1] if host_and_port else ""
        return authority.lower() == host_header or (
            page == request.url.scheme and parts[1] == port and self._names.has(authority)
        )
