"""The client's requests to the service, with unmodified responses; the only module that calls the SDK.

No request is retried and no redirect is followed here: the host decides on retries, and the conversation goes only to
the endpoint that the app configured.
"""

# ruff: noqa: SLF001 - aiohttp has no public way to change a response

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Final, cast

from durable_agent_host.agent.http_exchange import HttpExchange, record_request
from durable_agent_host.codec.strict_json import read_json
from durable_agent_host.providers.event_normalization import EventDecoder
from durable_agent_host.providers.http_client_guards import (
    EVENT_STREAM,
    closing_responses,
    closing_stream,
    track_response,
    tracked_responses,
    without_lone_surrogates,
)


@cache
def _transport_class() -> type[Any]:
    """Create the class of the SDK's transport that records requests and responses."""
    from aiohttp import ClientSession, DummyCookieJar  # noqa: PLC0415 - loaded when used
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - the same

    class RecordedTransport(AioHttpTransport):
        async def open(self) -> None:
            if self.session is None and not self._has_been_opened:
                session = ClientSession(trust_env=self._use_env_settings, cookie_jar=DummyCookieJar())
                self.session = cast("Any", RecordedSession(session))
            transport: Any = super()
            await transport.open()

    return RecordedTransport


Json = dict[str, Any]

_ONCE: Final[dict[str, Any]] = {"retry_total": 0, "permit_redirects": False}
_MAX_MESSAGES_SEARCHED: Final = 50
_NEWEST_FIRST: Final = "desc"
_OLDEST_FIRST: Final = "asc"
_RESULTS: Final = "step_details.tool_calls[*].file_search.results[*].content"


def connect(endpoint: str, credential: Any, api_key: str | None) -> Any:
    """Create the SDK's client."""
    from azure.ai.agents.aio import AgentsClient
    from azure.core.credentials import AzureKeyCredential  # noqa: PLC0415 - the same
    from azure.core.pipeline.policies import AzureKeyCredentialPolicy  # noqa: PLC0415 - the same

    if api_key is None:
        if credential is None:
            from azure.identity.aio import DefaultAzureCredential

            credential = DefaultAzureCredential()
        return AgentsClient(endpoint, credential, transport=_transport_class()())
    key = AzureKeyCredential(api_key)
    policy = cast("Any", AzureKeyCredentialPolicy)(key, "api-key")
    return AgentsClient(endpoint, cast("Any", key), authentication_policy=policy, transport=_transport_class()())


class AgentsService:
    """The service, over the SDK's client.

    Args:
        sdk: the app's, or created by `connect`.
    """

    def __init__(self, sdk: Any) -> None:
        self.sdk = sdk

    async def find_agent(self, name: str) -> Json | None:
        """Return the newest agent with a name."""
        async for agent in self.sdk.list_agents(limit=100, order=_NEWEST_FIRST, **_ONCE):
            if agent.name == name:
                return agent.as_dict()
        return None

    async def create_agent(self, body: Json) -> Json:
        return (await self.sdk.create_agent(body, **_ONCE)).as_dict()

    async def agent(self, agent_id: str) -> Json:
        """Read an agent."""
        return (await self.sdk.get_agent(agent_id, **_ONCE)).as_dict()

    async def create_thread(self, body: Json) -> Json:
        return (await self.sdk.threads.create(without_lone_surrogates(body), **_ONCE)).as_dict()

    async def post_message(self, thread_id: str, body: Json) -> Json:
        """Add a message to a thread."""
        return (await self.sdk.messages.create(thread_id, without_lone_surrogates(body), **_ONCE)).as_dict()

    async def message(self, thread_id: str, message_id: str) -> Json:
        """Read a message."""
        return (await self.sdk.messages.get(thread_id, message_id, **_ONCE)).as_dict()

    async def has_message(self, thread_id: str, metadata: Mapping[str, str]) -> bool:
        """Return whether a thread has a message with these metadata among its newest."""
        remaining = _MAX_MESSAGES_SEARCHED
        async for message in self.sdk.messages.list(
            thread_id, limit=_MAX_MESSAGES_SEARCHED, order=_NEWEST_FIRST, **_ONCE
        ):
            if metadata.items() <= dict(message.metadata or {}).items():
                return True
            if not (remaining := remaining - 1):
                break
        return False

    async def run(self, thread_id: str, run_id: str) -> Json:
        """Read a run."""
        return (await self.sdk.runs.get(thread_id, run_id, **_ONCE)).as_dict()

    async def runs(self, thread_id: str, max_runs: int) -> list[Json]:
        """Read the newest runs of a thread, newest first."""
        recent_runs: list[Json] = []
        async for run in self.sdk.runs.list(thread_id, limit=max_runs, order=_NEWEST_FIRST, **_ONCE):
            recent_runs.append(run.as_dict())
            if len(recent_runs) == max_runs:
                break
        return recent_runs

    async def steps(self, thread_id: str, run_id: str) -> list[Json]:
        """Read the steps of a run, oldest first, including the results of file searches."""
        pages = self.sdk.run_steps.list(thread_id, run_id, include=[_RESULTS], limit=100, order=_OLDEST_FIRST, **_ONCE)
        return [step.as_dict() async for step in pages]

    async def cancel(self, thread_id: str, run_id: str) -> Json:
        return (await self.sdk.runs.cancel(thread_id, run_id, **_ONCE)).as_dict()

    def start_run(self, thread_id: str, body: Json) -> AsyncGenerator[tuple[str, Any]]:
        """Create a run and yield its events: name, and unmodified data."""
        return _stream(self.sdk.runs.stream, thread_id, body=body, include=[_RESULTS])

    def submit(self, thread_id: str, run_id: str, body: Json) -> AsyncGenerator[tuple[str, Any]]:
        """Send a run the outputs of its calls, or approvals, and yield the events that follow."""
        return _stream(self.sdk.runs.submit_tool_outputs_stream, thread_id, run_id, body=body)

    async def file(self, file_id: str) -> Json:
        """Read the service's description of a file."""
        return (await self.sdk.files.get(file_id, **_ONCE)).as_dict()

    async def read_file(self, file_id: str) -> bytes:
        """Download a file."""
        chunks = await self.sdk.files.get_content(file_id, **_ONCE)
        return b"".join([chunk async for chunk in chunks])

    async def upload(self, name: str, data: bytes) -> str:
        """Upload a file for messages, and return its id."""
        body: Any = {"file": (name, data), "purpose": "assistants"}
        return (await self.sdk.files.upload(body, **_ONCE)).id


async def _stream(start: Any, *ids: str, body: Json, **options: Any) -> AsyncGenerator[tuple[str, Any]]:
    from azure.ai.agents.models import BaseAsyncAgentEventHandler

    handler = BaseAsyncAgentEventHandler[Any]()
    request_body = without_lone_surrogates({**body, "stream": True})
    with tracked_responses() as responses:
        await start(*ids, request_body, event_handler=handler, stream=True, **options, **_ONCE)
    async with aclosing(closing_responses(_read_events(handler.response_iterator), responses)) as events:
        async for event in events:
            yield event


async def _read_events(chunks: Any) -> AsyncGenerator[tuple[str, Any]]:
    """Decode a stream without the SDK's models, which rename fields and drop unknown events."""
    async with closing_stream(chunks):
        async for event in EventDecoder().aiter_bytes(chunks):
            try:
                yield event.event, event.json()
            except ValueError:
                yield event.event, event.data


class RecordedSession:
    """A session of aiohttp whose requests and responses are recorded.

    Args:
        session: of the SDK; shared.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the original."""
        return getattr(self._session, name)

    async def request(self, method: str, url: str, **kwargs: Any) -> Any:
        """Make a request."""
        from multidict import CIMultiDict  # noqa: PLC0415 - loaded with aiohttp

        exchange = await record_request(method, url, kwargs.get("data"))
        response = await self._session.request(method, url, **kwargs)
        track_response(response)
        kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
        # aiohttp decompresses it; azure.core would decompress it again
        headers = [(name, value) for name, value in response.headers.items() if name.lower() != "content-encoding"]
        response._headers = type(response.headers)(CIMultiDict(headers))
        response._cache.pop("headers", None)
        if exchange is not None:
            exchange.record_status(response.status)
        response.content = RecordedContent(response.content, is_stream=kind == EVENT_STREAM, exchange=exchange)
        return response


class RecordedContent:
    """The body of a response, decompressed by aiohttp.

    Args:
        content: aiohttp's reader.
        is_stream: whether it is a stream of events.
        exchange: receives the data; or None.
    """

    def __init__(self, content: Any, *, is_stream: bool, exchange: HttpExchange | None = None) -> None:
        self._content = content
        self._exchange = exchange
        self._is_stream = is_stream

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the original."""
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        """Read all, or the available data; a chunk may be longer than requested."""
        if n >= 0:
            return await self.readany()
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the data as it arrives."""
        parts: list[bytes] = []
        try:
            while chunk := await self.readany():
                parts += () if self._is_stream else (chunk,)
                yield chunk
        except Exception:
            if self._is_stream or not isinstance(read_json(b"".join(parts)), dict | list):
                raise

    async def readany(self) -> bytes:
        """Read the available data; aiohttp raises an error before it returns the data that arrived before the error."""
        try:
            chunk: bytes = await self._content.readany()
        except Exception:
            chunk = self._content._read_nowait(-1)
            if not chunk:
                raise
        if self._exchange is not None and chunk:
            self._exchange.record_chunk(chunk)
        return chunk
