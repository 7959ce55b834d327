"""The provider for clients without a registered one: only the framework's contents are stored."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from agent_framework import Content, Message, detect_media_type_from_base64

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.retry_classification import classify_error
from durable_agent_host.codec.tool_result_text import file_text
from durable_agent_host.errors import NotFoundError, ProviderError, RequestError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import STAMP, ItemPart, LostState, is_carrier
from durable_agent_host.providers import http_client_guards, stream_completion
from durable_agent_host.providers.adapted_client import FoldedStreamMixin, ItemUpdate, create_adapter, unwrap_update
from durable_agent_host.providers.client_errors import explain_client_error
from durable_agent_host.providers.cross_provider_history import ReplayTarget, rewrite_for
from durable_agent_host.providers.item_metadata import ItemMetadata
from durable_agent_host.providers.lost_state import LossRules, apply_losses, mark_refusals, with_contents
from durable_agent_host.providers.result_files import omit_rejected_files
from durable_agent_host.providers.services import find_service

_UNAVAILABLE_STATUSES: Final = frozenset({400, 403, 404, 410})
"""Statuses of files that have expired, or that the service does not release."""


IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Of the references of OpenAI, Anthropic, xAI and Mistral."""


class GenericProvider(ModelProvider):
    """Implements the port for any client; other providers derive from it.

    Attributes:
        target: the contents that the client can send of a conversation that another provider started. A provider that
            attaches item metadata sets its name here.
        overrides: of an adapted client; it also sends carriers of items. None if the client is used unchanged.
        loss_rules: what is not sent again when the service has lost it.
        image_types: of images that its services take; empty if they are not known.
        compaction_type: of items that replace everything before them, which then need not be sent; empty if none do.
    """

    target: ClassVar[ReplayTarget] = ReplayTarget(unsent=frozenset())
    overrides: ClassVar[type[FoldedStreamMixin] | None] = None
    loss_rules: ClassVar[LossRules] = LossRules()
    image_types: ClassVar[frozenset[str]] = frozenset()
    compaction_type: ClassVar[str] = ""

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with the provider's overrides, so that it keeps the service's own data."""
        find_service(client)  # a service that the app names must exist
        return client if self.overrides is None else create_adapter(client, self.overrides, self)

    def sdk_clients(self, client: Any, /) -> dict[str, Any]:
        """Guard the SDK clients recognized by their attributes; see `http_client_guards.sdk_clients`."""
        return http_client_guards.sdk_clients(client)

    def is_compaction_item(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Recognize the items that the option ``context_management`` makes the service emit."""
        if not (self.compaction_type and options.get("context_management")):
            return None
        find_metadata = ItemMetadata(self.target.provider).find
        return lambda message: any(
            (find_metadata(content) or {}).get("type") == self.compaction_type for content in message.contents
        )

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the item of an adapted client's update."""
        raw = unwrap_update(update)
        return raw.part if type(raw) is ItemUpdate else None

    def is_truncated(self, updates: Iterable[Any], /) -> bool:
        """Check for the end mark of the providers that are recognized by their events."""
        return stream_completion.is_truncated(updates)

    def check_message(self, message: Message, /) -> None:
        """Reject files of another type than they are called, and images of types that no service of this kind takes."""
        for content in message.contents if self.image_types else ():
            declared_type = str(content.media_type).replace("/jpg", "/jpeg").replace("/heif", "/heic")
            is_image = declared_type.startswith("image/")
            if content.type != "data" or not (is_image or declared_type == "application/pdf"):
                continue
            found_type = _detect_type(str(content.uri).partition(";base64,")[2][:1024]) or declared_type
            if found_type != declared_type or (is_image and found_type not in self.image_types):
                raise RequestError(
                    f"the file ({file_text(content)}) is {found_type}: the model's service takes files under their "
                    f"own type, and of images {', '.join(sorted(self.image_types))}"
                )

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Describe contents as text that only another provider's client can send."""
        del session_id
        return self.as_history(rewrite_for(messages, self.target))

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Remove completed hosted approvals, and carriers of items that the client does not send."""
        history = remove_completed_approvals(messages)
        return remove_carriers(history) if self.overrides is None else history

    def carry(
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Change the contents that the service has lost or cannot read, and mark what it refuses."""
        losses = list(new_losses)
        if not (losses or stored_losses):
            return list(messages), {}
        usable_messages, known_losses = apply_losses(messages, stored_losses, losses, self.loss_rules)
        if losses or known_losses:
            usable_messages, known_losses = omit_rejected_files(usable_messages, known_losses, losses)
        return mark_refusals(usable_messages, known_losses, losses)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, alone or in the outputs of a hosted tool."""
        outputs: Any = content.outputs
        for part in (content, *cast("list[Any]", outputs)) if isinstance(outputs, list) else (content,):
            if isinstance(part, Content) and part.type == "hosted_file" and part.file_id:
                yield ServiceFile(part.file_id, part.name, part.media_type)

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        try:
            return await self.download_file(client, file)
        except Exception as error:
            decision = classify_error(error)
            if decision is None:
                raise
            if decision.status in _UNAVAILABLE_STATUSES:
                raise NotFoundError(
                    f"the model's service does not provide the file {file.file_id!r}: {decision.message}"
                ) from error
            raise ProviderError(
                f"the file {file.file_id!r} cannot be read: {decision.message}", retryable=decision.retryable
            ) from error

    async def download_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download nothing: only the service's provider knows how."""
        del client
        raise NotFoundError(f"the file {file.file_id!r} is with the model's service, and cannot be read from there")

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Explain it with its status and message."""
        return explain_client_error(error)


_IMAGE: Final = re.compile(rb".{4}ftyp(?:(?P<heic>he|mif1|msf1)|(?P<avif>avi))|(?P<tiff>II\*\0|MM\0\*)", re.DOTALL)
"""How images begin that the framework does not recognize."""


def _detect_type(beginning: str) -> str | None:
    """Return the type of bytes in base64, except of sound, whose mark can be two bytes of anything."""
    data = base64.b64decode(beginning)
    image = _IMAGE.match(data)
    found_type = f"image/{image.lastgroup}" if image else detect_media_type_from_base64(data_bytes=data)
    return None if found_type == "audio/mpeg" else found_type


def remove_carriers(messages: Iterable[Message]) -> list[Message]:
    """Remove the contents that only carry another provider's item.

    Returns:
        The messages that still have contents, copies where a content was removed.
    """
    return remove_contents(messages, is_carrier)


def remove_completed_approvals(messages: Sequence[Message]) -> list[Message]:
    """Remove completed hosted approvals: the framework would treat them as open, and send the responses again."""
    contents = [content for message in messages for content in message.contents]
    responded_ids = {content.id for content in contents if content.type == "function_approval_response"}

    def is_completed(content: Content) -> bool:
        call = content.function_call
        if call is None or not call.hosted or content.id not in responded_ids:
            return False
        return content.type == "function_approval_response" or STAMP in content.additional_properties

    return remove_contents(messages, is_completed) if responded_ids else list(messages)


def remove_contents(messages: Iterable[Message], should_remove: Callable[[Content], bool]) -> list[Message]:
    """Remove contents, and messages that have no others."""
    remaining_messages: list[Message] = []
    for message in messages:
        contents = [content for content in message.contents if not should_remove(content)]
        if len(contents) < len(message.contents):
            message = with_contents(message, contents)  # noqa: PLW2901 - replaced by the copy
        if contents:
            remaining_messages.append(message)
    return remaining_messages
