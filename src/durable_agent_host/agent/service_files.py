"""Files kept by the model's service, for reading a conversation outside of a turn."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from agent_framework import Content

from durable_agent_host.agent.hosting import HostedAgent
from durable_agent_host.agent.loop import submit
from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile


class ServiceFiles:
    """The files kept by one agent's service.

    Args:
        host: returns the agent, with its client and provider.
    """

    def __init__(self, host: Callable[[], HostedAgent]) -> None:
        self._host = host

    def of(self, content: Content) -> Iterable[ServiceFile]:
        """List the files of the service to which a stored content refers."""
        return self._host().provider.service_files(content)

    async def read(self, file: ServiceFile) -> ServedFile:
        """Download a file on the agents' event loop, to which the client's connections belong.

        Raises:
            NotFoundError: the service does not have it, or does not give it out, or its SDK takes no such id.
            ProviderError: the service failed.
        """
        hosted = self._host()
        client: Any = getattr(hosted.agent, "client", None)
        try:
            return await asyncio.wrap_future(submit(hosted.provider.read_service_file(client, file)))
        except ValueError as error:  # of the SDK, for what would be another path, such as ".."
            raise NotFoundError(f"the model's service cannot be asked for the file {file.file_id[:100]!r}") from error
