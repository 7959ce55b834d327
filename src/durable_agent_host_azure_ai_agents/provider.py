"""The Azure AI Agents service behind the port."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import HostedCall, LostState
from durable_agent_host.providers.adapted_client import ItemUpdate, unwrap_update
from durable_agent_host.providers.cross_provider_history import ReplayTarget
from durable_agent_host.providers.generic_provider import GenericProvider
from durable_agent_host.redaction import add_known_secrets
from durable_agent_host_azure_ai_agents.errors import explain_run, find_lost_state
from durable_agent_host_azure_ai_agents.run_events import FAILED_STATUSES, FINAL_STATUSES, AgentsEvent, complete_item
from durable_agent_host_azure_ai_agents.thread_contents import PROVIDER, hosted_call

_FINAL_EVENTS: Final = frozenset(f"thread.run.{status}" for status in FINAL_STATUSES)


class AzureAIAgentsProvider(GenericProvider):
    """Agents with a conversation in a thread of the service."""

    keeps_conversation = True
    target = ReplayTarget(PROVIDER)

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that its runs are journaled: a run continues at the service after a crash here."""
        return client if isinstance(client, _RemoteRunMixin) else copy_with_mixin(client, _RemoteRunMixin)

    def sdk_clients(self, client: Any, /) -> dict[str, Any]:
        """Copy nothing: the client's own connection records what it sends and receives, and never retries."""
        add_known_secrets([key for key in (client.api_key,) if isinstance(key, str)])
        return {}

    def is_truncated(self, updates: Iterable[Any], /) -> bool:
        """Look for a run that has ended, or waits for the app; cut-off data of its event is a text."""
        received = [unwrap_update(update) for update in updates]
        events = [raw.event for raw in received if isinstance(raw, ItemUpdate) and isinstance(raw.event, AgentsEvent)]
        if not events:
            return super().is_truncated(received)
        return not any(event.name in _FINAL_EVENTS and not isinstance(event.data, str) for event in events)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of the finished block."""
        return complete_item(contents, item)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List the call that the end of its step finishes."""
        if not item.get("step") or "call" not in item:
            return ()
        has_failed = item["step"].get("status") in FAILED_STATUSES
        return (hosted_call(item["call"], "error" if has_failed else "success"),)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List images and files that code has created or a text cites."""
        yield from super().service_files(content)
        for annotation in content.annotations or ():
            if file_id := annotation.get("file_id"):
                marker = str((annotation.get("additional_properties") or {}).get("text"))
                yield ServiceFile(file_id, marker.rpartition("/")[2] if marker.startswith("sandbox:") else None)

    async def download_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download it with its name."""
        file_fields = await client.service.file(file.file_id)
        return ServedFile(await client.service.read_file(file.file_id), file_fields.get("filename"))

    async def cancel(self, client: Any, continuation: Mapping[str, Any], /) -> None:
        """Cancel the run, unless it has ended."""
        thread_id = continuation.get("thread_id")
        run_id = continuation.get("run_id")
        if thread_id and run_id:
            run = await client.service.run(thread_id, run_id)
            if run.get("status") in {"queued", "in_progress", "requires_action"}:
                await client.service.cancel(thread_id, run_id)

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return a deleted thread, or a run that expired while it waited for the app."""
        return find_lost_state(error)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Explain how a run ended; other errors as for all clients."""
        return explain_run(error) or super().explain(error)


class _RemoteRunMixin:
    """The override; precedes the client's own class in the method resolution order."""

    def get_response(self, messages: Any, *, options: Any = None, **arguments: Any) -> Any:
        client: Any = super()
        return client.get_response(messages, options={**(options or {}), "background": True}, **arguments)


AZURE_AI_AGENTS: Final = AzureAIAgentsProvider()
"""The Azure AI Agents service."""
