"""The events of a turn as they arrive, across lost connections and restarts of the host."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import override
from urllib.parse import quote
from uuid import uuid4

from durable_agent_host.agent_client import LOGGER, TurnEvent
from durable_agent_host.cli.host_client import CommandError, HostRoutes
from durable_agent_host.errors import AgentClientError


class TurnEvents:
    """Follows one turn from its first event, or from where it stopped; each event comes once.

    Args:
        host: the running host.
        agent: the agent's name.
        on_remark: called with a sentence when the connection is lost, and when it is back.

    Attributes:
        session_id, turn_id: of the turn, empty until the host has sent them.
    """

    def __init__(
        self,
        host: HostRoutes,
        agent: str,
        *,
        session_id: str = "",
        turn_id: str = "",
        on_remark: Callable[[str], None],
    ) -> None:
        self._host = host
        self._agent = agent
        self.session_id = session_id
        self.turn_id = turn_id
        self._last: int | None = None
        self._message = ""
        self._key = ""
        self._remarks = _Remarks(on_remark)

    @property
    def path(self) -> str:
        """The path of the turn's routes, after ``/api``."""
        return self._host.session_path(self._agent, self.session_id, f"turns/{quote(self.turn_id, safe='')}")

    def say(self, message: str) -> None:
        """Begin the turn with a message, once it is followed; resending it starts no second turn."""
        self._message = message
        self._key = uuid4().hex

    def __iter__(self) -> Iterator[TurnEvent]:
        """Yield the events not yet returned, until the turn's last.

        Raises:
            CommandError: the host refuses, or is unreachable for longer than the client waits for it.
        """
        client = self._host.client()
        LOGGER.addHandler(self._remarks)
        with asyncio.Runner() as runner:
            try:
                if not self.turn_id:
                    session_id = self.session_id or None
                    run = client.run(
                        self._agent, self._message, session_id=session_id, idempotency_key=self._key, wait=False
                    )
                    turn = runner.run(run)
                    self.session_id, self.turn_id = turn.session_id, turn.turn_id
                events = client.follow(self._agent, self.session_id, self.turn_id, after=self._last)
                try:
                    while (event := runner.run(_next(events))) is not None:
                        self._last = event.id
                        yield event
                        if event.is_last:
                            return
                finally:
                    runner.run(events.aclose())
            except AgentClientError as error:
                raise CommandError(str(error), error.status) from None
            finally:
                runner.run(client.aclose())
                LOGGER.removeHandler(self._remarks)
        raise CommandError(
            f"turn {self.turn_id!r} has ended, and the host no longer has its events after {self._last}: "
            "see 'durable-agent-host turns show'"
        )


async def _next(events: AsyncGenerator[TurnEvent]) -> TurnEvent | None:
    return await anext(events, None)


class _Remarks(logging.Handler):
    """Passes on what the client logs."""

    def __init__(self, on_remark: Callable[[str], None]) -> None:
        super().__init__()
        self._on_remark = on_remark

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Pass a sentence on."""
        self._on_remark(record.getMessage())
