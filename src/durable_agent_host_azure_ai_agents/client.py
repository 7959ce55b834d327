"""A chat client of the framework for agents of the Azure AI Agents service.

The service keeps the conversation in a thread, whose id is the conversation id. Without this host it is a plain chat
client; hosted, it gets the turn's id and a continuation token, and a crash repeats nothing (`run_call`).
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Final, cast

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from durable_agent_host.agent.response_limits import until_its_end
from durable_agent_host.errors import RegistrationError
from durable_agent_host.providers.adapted_client import FoldedStreamMixin
from durable_agent_host_azure_ai_agents.provider import AZURE_AI_AGENTS
from durable_agent_host_azure_ai_agents.run_call import RunCall
from durable_agent_host_azure_ai_agents.service_client import AgentsService, connect

_MAX_STARTED_REQUESTS: Final = 1024


class RawAzureAIAgentsChatClient(FoldedStreamMixin, BaseChatClient[Any]):
    """`AzureAIAgentsChatClient` without the framework's layers."""

    OTEL_PROVIDER_NAME: ClassVar[str] = "azure.ai.agents"
    STORES_BY_DEFAULT: ClassVar[bool] = True
    item_reader = AZURE_AI_AGENTS

    def __init__(
        self,
        *,
        agent_id: str | None = None,
        agent_name: str | None = None,
        model: str | None = None,
        endpoint: str | None = None,
        credential: Any = None,
        api_key: str | None = None,
        agents_client: Any = None,
        tool_resources: Mapping[str, Any] | None = None,
        poll_seconds: float = 1.0,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        endpoint = endpoint or os.environ.get("AZURE_AI_PROJECT_ENDPOINT")
        if not (agent_id or (agent_name and model)):
            raise RegistrationError("pass agent_id, or agent_name and model to find or create an agent by its name")
        if agents_client is None and not (endpoint and (credential is not None or api_key)):
            raise RegistrationError(
                "pass agents_client, or endpoint (or AZURE_AI_PROJECT_ENDPOINT) with credential or api_key"
            )
        self.sdk = agents_client or connect(str(endpoint), credential, api_key)
        self.agent_id = agent_id
        self.agent_name = agent_name
        self.model = model
        self.tool_resources = dict(tool_resources or {})
        self.poll_seconds = poll_seconds
        self.api_key = api_key
        self.turn_id = ""
        self._agent_json: dict[str, Any] = {}
        self._started_requests: set[str] = set()

    @property
    def service(self) -> AgentsService:
        """The service, over the SDK's client."""
        return AgentsService(self.sdk)

    def service_url(self) -> str:
        return str(getattr(getattr(self.sdk, "_config", None), "endpoint", ""))

    def _start_call(
        self, *, messages: Sequence[Message], options: Mapping[str, Any], **_: Any
    ) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        return ResponseStream(self._updates(messages, options), finalizer=self._finalize_response_updates)

    async def _updates(self, messages: Sequence[Message], options: Mapping[str, Any]) -> AsyncIterator[Any]:
        valid_options = await self._validate_options(options)
        if len(self._started_requests) > _MAX_STARTED_REQUESTS:
            self._started_requests.clear()
        call = RunCall(
            service=self.service,
            agent=await self._agent(valid_options),
            messages=messages,
            options=valid_options,
            resources=self.tool_resources,
            turn_id=self.turn_id,
            poll_seconds=self.poll_seconds,
            started_requests=self._started_requests,
        )
        async with aclosing(until_its_end(call.updates(), AZURE_AI_AGENTS.is_truncated)) as updates:
            async for update in updates:
                yield update

    async def _agent(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the agent once: its tools stay when the app adds its own."""
        if not self._agent_json:
            self._agent_json.update(await self._find_or_create_agent(options))
        return self._agent_json

    async def _find_or_create_agent(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if self.agent_id:
            return await self.service.agent(self.agent_id)
        name = cast("str", self.agent_name)
        agent = await self.service.find_agent(name)
        if agent is not None:
            return agent
        instructions = options.get("instructions")
        body = {"name": name, "model": self.model} | ({"instructions": instructions} if instructions else {})
        return await self.service.create_agent(body)


class AzureAIAgentsChatClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], RawAzureAIAgentsChatClient):
    """Talks to one agent of the Azure AI Agents service, with all of its tools.

    Keyword Args:
        agent_id: of an existing agent.
        agent_name: instead of the id: finds an agent by its name, or creates one.
        model: deployment for a created agent.
        endpoint: of the project; by default ``AZURE_AI_PROJECT_ENDPOINT``.
        credential: async token credential, as in azure-identity; or ``api_key``, sent as a header.
        agents_client: the SDK's client, instead of endpoint and credential; the app closes it.
        tool_resources: for every run: files, vector stores, headers of MCP servers.
        poll_seconds: interval for polling a run that no longer has a stream.
        more: ``middleware``, ``function_invocation_configuration`` and other arguments of the framework's chat clients.

    Raises:
        RegistrationError: the agent or its location is missing.
    """
