"""The client's requests to the service, with unmodified responses; the only module that calls the SDK.

No request is retried and no redirect is followed here: the host decides on retries, and the conversation goes only to
the endpoint that the app configured.
"""

# ruff: noqa: SLF001 - the SDK has no public way to copy a client with another transport

import copy
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from functools import cache
from itertools import pairwise
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from durable_agent_host.agent.response_limits import ResponseSizeMeter
from durable_agent_host.providers.bounded_aiohttp import BoundedSession
from durable_agent_host.providers.event_normalization import EventDecoder
from durable_agent_host.providers.response_cleanup import closing_responses, closing_stream, tracked_responses
from durable_agent_host.providers.surrogate_replacement import without_lone_surrogates

_COPIES: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
"""The app's clients → their copies, each with its own connections."""


@cache
def _transport_class() -> type[Any]:
    """Create the class of the SDK's transport with limited responses."""
    from aiohttp import ClientSession, DummyCookieJar  # noqa: PLC0415 - loaded when used
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - the same

    class BoundedTransport(AioHttpTransport):
        async def open(self) -> None:
            if self.session is None and not self._has_been_opened:
                session = ClientSession(trust_env=self._use_env_settings, cookie_jar=DummyCookieJar())
                self.session = cast("Any", BoundedSession(session))
            transport: Any = super()
            await transport.open()

    return BoundedTransport


def bounded_transport() -> Any:
    """Make a transport for the SDK's client."""
    return _transport_class()()


def copy_with_limits(sdk: Any) -> Any:
    """Copy an app's client, with a transport with limited responses.

    Returns:
        The copy, with its own connections, configured as by the app; the client itself when its transport is already
        limited, or was supplied by the app.
    """
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - loaded when used

    pipeline: Any = getattr(getattr(sdk, "_client", None), "_pipeline", None)
    transport: Any = getattr(pipeline, "_transport", None)
    if type(transport) is not AioHttpTransport or not transport._session_owner:
        return sdk
    if sdk not in _COPIES:
        _COPIES[sdk] = _copy_sdk(sdk, transport)
    return _COPIES[sdk]


def _copy_sdk(sdk: Any, transport: Any) -> Any:
    limited_transport = bounded_transport()
    limited_transport.connection_config = transport.connection_config
    limited_transport._use_env_settings = transport._use_env_settings
    client = copy.copy(sdk._client)
    client._pipeline = copy.copy(client._pipeline)
    client._pipeline._transport = limited_transport
    policies = [copy.copy(policy) for policy in cast("list[Any]", client._pipeline._impl_policies)]
    client._pipeline._impl_policies = policies
    for policy, next_policy in pairwise(policies):
        policy.next = next_policy
    policies[-1].next = copy.copy(policies[-1].next)
    policies[-1].next._sender = limited_transport
    sdk_copy: Any = copy.copy(sdk)
    for name, operations in list(cast("dict[str, Any]", vars(sdk_copy)).items()):
        if getattr(operations, "_client", None) is sdk._client:
            operations_copy = copy.copy(operations)
            operations_copy._client = client
            setattr(sdk_copy, name, operations_copy)
    sdk_copy._client = client
    return sdk_copy


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
        return AgentsClient(endpoint, credential, transport=bounded_transport())
    key = AzureKeyCredential(api_key)
    policy = cast("Any", AzureKeyCredentialPolicy)(key, "api-key")
    return AgentsClient(endpoint, cast("Any", key), authentication_policy=policy, transport=bounded_transport())


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
        """Create an agent."""
        return (await self.sdk.create_agent(body, **_ONCE)).as_dict()

    async def agent(self, agent_id: str) -> Json:
        """Read an agent."""
        return (await self.sdk.get_agent(agent_id, **_ONCE)).as_dict()

    async def create_thread(self, body: Json) -> Json:
        """Create a thread."""
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
        """Cancel a run."""
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


async def _split_lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Limit a stream, also over the app's connection."""
    meter = ResponseSizeMeter(is_stream=True, is_counted=True)
    async with closing_stream(chunks):
        async for chunk in chunks:
            if lines := meter.feed(chunk):
                yield lines
        yield meter.flush()


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
    async with aclosing(_split_lines(chunks)) as lines:
        async for event in EventDecoder().aiter_bytes(lines):
            try:
                yield event.event, event.json()
            except ValueError:
                yield event.event, event.data
