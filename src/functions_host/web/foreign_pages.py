"""Which web pages may call the host; `host_names` has the theory."""

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from functions_host.host_names import HostNames, split_authority
from functions_host.web.problems import problem

FOREIGN_PAGE_HEADER = "x-functions-host-foreign-page"
"""Header on a foreign page's request to an anonymous function: the page, as far as the browser names it."""

_SAFE_METHODS = frozenset({"GET", "HEAD"})


class PageRules:
    """Decides which pages of other origins may call.

    Args:
        names: accepted by the host.
        origins: allowed by ``Host.CORS``; ``*`` is any.
    """

    def __init__(self, names: HostNames, origins: Iterable[str] = ()) -> None:
        self._names = names
        self._origins = frozenset(origin.lower() for origin in origins)

    def find_foreign_page(self, request: Request) -> str | None:
        """Return the page behind a request if its origin is foreign and not allowed, else None."""
        origin = request.headers.get("origin")
        if origin is not None:
            is_known = "*" in self._origins or origin.lower() in self._origins
            return None if is_known or self._is_own(origin, request) else origin
        site = request.headers.get("sec-fetch-site", "none").lower()
        if site in {"none", "same-origin"} or "*" in self._origins:
            return None
        referrer = urlsplit(request.headers.get("referer", ""))  # no page can name another one here
        is_known = f"{referrer.scheme}://{referrer.netloc}".lower() in self._origins
        return None if is_known else f"a {site} page"

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


def is_link(request: Request) -> bool:
    """Return whether a request navigates a window here: the linking page cannot read the answer."""
    expected_headers = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    is_window = all(request.headers.get(name, "").lower() == value for name, value in expected_headers.items())
    return is_window and request.method in _SAFE_METHODS


def reject_page(page: str) -> Response:
    """Refuse the request of a foreign page."""
    return problem(
        HTTPStatus.FORBIDDEN,
        f"Pages of other origins may not call this ({page}); list the page's origin under Host.CORS in "
        "local.settings.json to let it.",
    )
