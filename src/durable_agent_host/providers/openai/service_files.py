"""Files stored by OpenAI: those that code wrote in a container, and those of the Files API."""

from collections.abc import Iterable
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.providers.openai.errors import explain_error

_CONTAINER: Final = "container_id"
_UNAVAILABLE_STATUSES: Final = frozenset({400, 403, 404, 410})
"""Statuses of files that have expired, or that the Files API does not release."""


def cited_files(content: Content) -> Iterable[ServiceFile]:
    """List the files of containers that a text cites. Guarantee: pure.

    Args:
        content: of any type.
    """
    for annotation in content.annotations or ():
        fields = cast("dict[str, Any]", annotation)
        properties = cast("dict[str, Any]", fields.get("additional_properties") or {})
        container = properties.get(_CONTAINER)
        if fields.get("file_id") and container:
            name = fields.get("url") or fields.get("title")
            yield ServiceFile(
                str(fields["file_id"]),
                str(name).rpartition("/")[2] if name else None,
                place={_CONTAINER: str(container)},
            )


async def read_file(client: Any, file: ServiceFile) -> ServedFile:
    """Download a file.

    Args:
        client: a chat client of the framework, with the SDK's client.
        file: as named in the conversation.

    Returns:
        Its bytes; the name is in the citation.

    Raises:
        NotFoundError: the service no longer has it, or does not release it.
        ProviderError: the service failed.
    """
    from openai import APIStatusError  # noqa: PLC0415 - one SDK per file, loaded when used

    sdk = client.client
    try:
        if container := file.place.get(_CONTAINER):
            response = await sdk.containers.files.content.retrieve(file.file_id, container_id=container)
        else:
            response = await sdk.files.content(file.file_id)
    except APIStatusError as error:
        if error.status_code in _UNAVAILABLE_STATUSES:
            raise NotFoundError(
                f"the model's service does not provide the file {file.file_id!r}: {error.message}"
            ) from error
        raise explain_error(error) or error from error
    return ServedFile(response.content)
