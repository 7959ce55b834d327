"""A TCP proxy that holds back one message, for as long as a test wants."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator


class HoldingProxy:
    """Forwards everything, but for the first message with a certain word after `hold`.

    Args:
        target: the server's port.

    Attributes:
        port: where it listens.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._word: bytes | None = None
        self._release = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    def hold(self, word: bytes) -> None:
        """Hold the next message to the server that has a word, and hang up on its sender."""
        self._word = word

    def release(self) -> None:
        """Let the message through."""
        self._release.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["HoldingProxy"]:
        """Listen until the block ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        response_pump = asyncio.create_task(_pump(there, writer))
        try:
            while data := await reader.read(65536):
                if self._word is not None and self._word in data:
                    self._word = None
                    writer.transport.abort()
                    await self._release.wait()
                back.write(data)
                await back.drain()
            await asyncio.sleep(0.1)  # the server reads what was held
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            response_pump.cancel()
            await asyncio.gather(response_pump, return_exceptions=True)
            for end in (writer, back):
                end.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
