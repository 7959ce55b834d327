"""The requests that every turn makes many times, without most of what the SDK does around a request.

A client of the SDK sends a request through sixteen policies, and writes and reads it with generated code: that takes
several times the processor time of the request itself. These few requests go over the same connections, with the same
credential, through a pipeline that only signs.
Source: the storage services' REST reference: Put Blob, Append Block, Get Blob, Get Blob Properties, List Blobs,
Authorize with Shared Key.
"""

import base64
import hmac
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.core.pipeline import AsyncPipeline, PipelineRequest
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, SansIOHTTPPolicy
from azure.core.pipeline.transport import HttpRequest

_SCOPE: Final = "https://storage.azure.com/.default"
_LARGE_BYTES: Final = 512 * 1024
_ERRORS: Final[dict[int, type[HttpResponseError]]] = {
    401: ClientAuthenticationError,
    404: ResourceNotFoundError,
    409: ResourceExistsError,
}


class BlobRequests:
    """Requests to one container and its blobs.

    Every method raises what the SDK would: an error of ``azure.core.exceptions``, with the service's ``error_code``.

    Args:
        url: of the container, with a shared access signature if there is one.
        credential: an account's name and key (attributes ``account_name`` and ``account_key``), a token credential, or
            None when the URL says it all.
        transport: shared with the SDK's client, which closes it.
        api_version: of the service.
    """

    def __init__(self, url: str, credential: Any, transport: Any, api_version: str) -> None:
        self._url, _, self._signature = url.partition("?")
        self._api_version = api_version
        policies: list[Any] = []
        if hasattr(credential, "get_token"):
            policies.append(_Token(credential, _SCOPE))
        elif credential is not None:
            policies.append(_SharedKey(credential.account_name, credential.account_key))
        self._pipeline: Any = AsyncPipeline(transport, policies=policies)

    async def create(self, name: str, metadata: Mapping[str, str]) -> None:
        """Make an append blob on the condition that there is none."""
        headers = {"x-ms-blob-type": "AppendBlob", "If-None-Match": "*", "Content-Length": "0"}
        await self._send(
            "PUT", f"/{name}", "", headers | {f"x-ms-meta-{key}": value for key, value in metadata.items()}
        )

    async def append(self, name: str, block: bytes, position: int) -> None:
        """Append a block on the condition that the blob ends at a position."""
        headers = {
            "x-ms-blob-condition-appendpos": str(position),
            "Content-Length": str(len(block)),
            "Content-Type": "application/octet-stream",
        }
        body = BytesIO(block) if len(block) > _LARGE_BYTES else block  # aiohttp wants large bodies as files
        await self._send("PUT", f"/{name}", "comp=appendblock", headers, body)

    async def read(self, name: str, start: int, length: int) -> tuple[bytes, Mapping[str, str]]:
        """Read a range of a blob: the bytes, and the headers of the answer."""
        response = await self._send("GET", f"/{name}", "", {"x-ms-range": f"bytes={start}-{start + length - 1}"})
        return response.body(), response.headers

    async def properties(self, name: str) -> Mapping[str, str]:
        """Ask for a blob's headers."""
        return (await self._send("HEAD", f"/{name}")).headers

    async def list(self, prefix: str) -> list[tuple[str, dict[str, str]]]:
        """List blobs by name: their names, and their metadata."""
        found: list[tuple[str, dict[str, str]]] = []
        query = f"restype=container&comp=list&include=metadata&prefix={quote(prefix, safe='')}"
        marker = ""
        while True:
            after = f"&marker={quote(marker, safe='')}" if marker else ""
            response = await self._send("GET", "", query + after)
            page = ET.fromstring(response.body())  # noqa: S314 (the account's own answer)
            for blob in page.iter("Blob"):
                metadata = blob.find("Metadata")
                of_blob = {one.tag: one.text or "" for one in (metadata if metadata is not None else ())}
                found.append((blob.findtext("Name") or "", of_blob))
            marker = page.findtext("NextMarker") or ""
            if not marker:
                return found

    async def _send(
        self, method: str, path: str, query: str = "", headers: dict[str, str] | None = None, body: Any = None
    ) -> Any:
        query = "&".join(part for part in (query, self._signature) if part)
        url = f"{self._url}{path}?{query}" if query else f"{self._url}{path}"
        signed = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": self._api_version} | (headers or {})
        response = (await self._pipeline.run(HttpRequest(method, url, headers=signed, data=body))).http_response
        if response.status_code in {200, 201, 206}:
            return response
        error: Any = _ERRORS.get(response.status_code, HttpResponseError)(response=response)
        error.error_code = response.headers.get("x-ms-error-code")
        raise error


class _Token(AsyncBearerTokenCredentialPolicy[Any, Any]):
    """Send a credential's token; a storage account of another tenant says where to get it."""

    async def on_challenge(self, request: PipelineRequest[Any], response: Any) -> bool:
        challenge = str(response.http_response.headers.get("WWW-Authenticate", ""))
        tenant = re.search(r"authorization_uri=\"?https://[^/\s]+/([^/\s\",]+)", challenge)
        resource = re.search(r"resource_id=\"?([^\s\",]+)", challenge)
        if not tenant or not resource:
            return False
        authorize: Any = self.authorize_request
        await authorize(request, f"{resource[1]}/.default", tenant_id=tenant[1])
        return True


class _SharedKey(SansIOHTTPPolicy[Any, Any]):
    """Sign requests with an account's key."""

    def __init__(self, account: str, key: str) -> None:
        super().__init__()
        self._account = account
        self._key = base64.b64decode(key)

    def on_request(self, request: PipelineRequest[Any]) -> None:
        sent = request.http_request
        headers: dict[str, str] = sent.headers
        url = urlsplit(str(sent.url))
        length = headers.get("Content-Length", "").removeprefix("0")  # only of nothing does it begin with 0
        # The empty lines stand for headers that these requests do not have.
        lines = [
            *(str(sent.method), "", "", length, "", headers.get("Content-Type", "")),
            *("", "", "", headers.get("If-None-Match", ""), "", ""),
            *sorted(f"{name}:{value}" for name, value in headers.items() if name.startswith("x-ms-")),
            f"/{self._account}{url.path}",
            *sorted(_parameters(url.query)),
        ]
        digest = hmac.digest(self._key, "\n".join(lines).encode(), "sha256")
        headers["Authorization"] = f"SharedKey {self._account}:{base64.b64encode(digest).decode()}"


def _parameters(query: str) -> Iterator[str]:
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name:
            yield f"{unquote(name).lower()}:{unquote(value)}"
