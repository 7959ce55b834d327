"""The built-in HTTP activity behind ``context.call_http``.

Source: ``CallHttpAction`` of azure-functions-durable 1.7, and its activity in azure-functions-durable-extension 2.13.
"""

import asyncio
import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from functions_host.engine.durable_functions import Raised, Returned

_TIMEOUT_SECONDS = 100.0
# Not the loop's own pool, which a stop of the host would wait for.
_threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="call-http")


async def run_http_activity(request_json: str) -> Returned | Raised:
    """Send the request of an orchestrator; every HTTP status is a result, not a failure."""
    try:
        http_request = cast("dict[str, Any]", json.loads(request_json))
        return Returned(await asyncio.get_running_loop().run_in_executor(_threads, _send, http_request))
    except (OSError, ValueError) as error:
        return Raised("HttpRequestException", str(error))


def _send(http_request: dict[str, Any]) -> str:
    if http_request.get("tokenSource"):
        raise ValueError("call_http with a managed identity works on Azure only; this host has no identity.")
    uri = str(http_request["uri"])
    if not uri.startswith(("http://", "https://")):
        raise ValueError(f"call_http needs an http or https address, got {uri!r}.")
    content = http_request.get("content")
    headers = cast("dict[str, str]", http_request.get("headers") or {})
    if content is not None and "content-type" not in {name.lower() for name in headers}:
        headers = {**headers, "Content-Type": "application/json"}
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        uri, None if content is None else str(content).encode(), headers, method=str(http_request["method"])
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            return _describe(response.status, dict(response.headers.items()), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _describe(error.code, dict(error.headers.items()), error.read())


def _describe(status: int, headers: dict[str, str], body: bytes) -> str:
    return json.dumps({"statusCode": status, "headers": headers, "content": body.decode(errors="replace")})
