"""The transport of Azure's SDKs over a client of httpx, so that they reach an application in this process."""

from collections.abc import AsyncIterator
from typing import Any, Self

import httpx2
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.core.rest._http_response_impl_async import AsyncHttpResponseImpl


class HttpxTransport(AsyncHttpTransport[Any, Any]):
    """Sends what the SDK asks for.

    Args:
        http: sends it; is closed by its owner.
    """

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def open(self) -> None:
        """Nothing has to be opened."""

    async def close(self) -> None:
        """Nothing has to be closed."""

    async def send(self, request: Any, *, stream: bool = False, **_: Any) -> AsyncHttpResponseImpl:
        """Send a request; the answer is whole when it comes."""
        headers, form = dict(request.headers), request._files
        body = {"files": dict(form), "data": request._data} if form else {"content": request.content}
        http_response = await self._http.request(request.method, request.url, headers=headers, **body)
        response = _Response(
            request=request,
            internal_response=http_response,
            status_code=http_response.status_code,
            headers=http_response.headers,
            reason=http_response.reason_phrase,
            content_type=http_response.headers.get("content-type"),
            stream_download_generator=_chunks,
        )
        if not stream:
            await response.read()
        return response


class _Response(AsyncHttpResponseImpl):
    async def close(self) -> None:
        self._is_closed = True


async def _chunks(*, response: Any, **_: Any) -> AsyncIterator[bytes]:
    yield response._internal_response.content
