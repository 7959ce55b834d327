"""Files made by the model's code, and their download by the Files API."""

from collections.abc import Iterator
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.providers.anthropic.errors import explain_error

_UNAVAILABLE_STATUSES: Final = frozenset({400, 403, 404, 410})


def generated_files(content: Content) -> Iterator[ServiceFile]:
    """List the files in the outputs of a run of code. Guarantee: pure.

    Args:
        content: of any type.
    """
    outputs: Any = content.outputs
    for output in cast("list[Any]", outputs) if isinstance(outputs, list) else ():
        if isinstance(output, Content) and output.type == "hosted_file" and output.file_id:
            yield ServiceFile(output.file_id, output.name, output.media_type)


async def read_file(client: Any, file: ServiceFile) -> ServedFile:
    """Download a file by the Files API.

    Args:
        client: the agent's chat client.
        file: as listed.

    Returns:
        Its bytes, with name and type, which no block has.

    Raises:
        NotFoundError: the service does not have it, or does not release it, such as a caller's upload.
        ProviderError: the service failed.
    """
    from anthropic import APIStatusError  # noqa: PLC0415 - one SDK per file, loaded when used

    try:
        files = client.anthropic_client.beta.files
        metadata = await files.retrieve_metadata(file.file_id)
        response = await files.download(file.file_id)
        return ServedFile(bytes(await response.read()), metadata.filename, metadata.mime_type)
    except APIStatusError as error:
        if error.status_code in _UNAVAILABLE_STATUSES:
            raise NotFoundError(
                f"the model's service does not provide the file {file.file_id!r}: {error.message}"
            ) from error
        raise explain_error(error) or error from error
