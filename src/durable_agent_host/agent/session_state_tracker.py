"""The framework session's state during a run: each step's changes are journaled with it and restored.

Tools, middleware and context providers of the app keep values in ``session.state``. A replayed run begins with the
state from before the turn, and finished calls do not run again; so when the journal answers them, their changes are
restored, in the order in which they ended. Only changed values are written, by name.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework import AgentSession

from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.agent.transcript_provider import TranscriptProvider
from durable_agent_host.codec.content import plain_json
from durable_agent_host.errors import CorruptStateError, InvalidAnswerError
from durable_agent_host.model.call_path import TURN_AGENT, CallPath
from durable_agent_host.model.session import WORKFLOW_STATE
from durable_agent_host.turn_log.journal import JournalState

_HOST_KEYS: Final = frozenset({TranscriptProvider.SOURCE_ID, WORKFLOW_STATE})
_TRIES: Final = 5
"""How often a state is read while a tool changes it."""


class SessionState:
    """Tracks what the steps of one run change in the session's state.

    Args:
        session: of the run, with the state from before the turn.
        records: changes recorded by earlier runs.
        path: of the run.
    """

    def __init__(self, session: AgentSession, records: JournalState, path: CallPath = TURN_AGENT) -> None:
        self._session = session
        self._records = records
        self._path = path
        self._applied_count = 0
        self._texts_by_name = self._texts()

    def changes(self) -> dict[str, Any] | None:
        """Return what has changed since the last step.

        Returns:
            ``set`` with values by name and ``removed`` with names, each when there are some; None without a change.

        Raises:
            RunStoppedError: the state holds a value that JSON cannot represent; the turn fails.
        """
        now = self._texts()
        new_values = {name: json.loads(text) for name, text in now.items() if self._texts_by_name.get(name) != text}
        removed_names = sorted(self._texts_by_name.keys() - now.keys())
        self._texts_by_name = now
        found = {"set": new_values, "removed": removed_names}
        return {key: value for key, value in found.items() if value} or None

    def restore(self, path: CallPath) -> None:
        """Restore the state at the end of a call."""
        ended_at = self._records.finished_at.get(path, -1)
        changes = self._records.state_changes.get(self._path, [])
        while self._applied_count < len(changes) and changes[self._applied_count][0] <= ended_at:
            self._apply(changes[self._applied_count][1])
            self._applied_count += 1

    def _apply(self, change: Mapping[str, Any]) -> None:
        values: dict[str, Any] = dict(change.get("set") or {})
        session_json = {"session_id": self._session.session_id, "state": values}
        self._session.state.update(AgentSession.from_dict(session_json).state)
        self._texts_by_name |= {name: _text(value) for name, value in values.items()}
        for name in change.get("removed") or ():
            self._session.state.pop(name, None)
            self._texts_by_name.pop(name, None)

    def _texts(self) -> dict[str, str]:
        for _ in range(_TRIES - 1):
            try:
                return self._read()
            except RuntimeError:  # a tool in a thread changed it at the same time
                continue
        return self._read()

    def _read(self) -> dict[str, str]:
        try:
            state: dict[str, Any] = cast("Any", self._session.to_dict())["state"]
            return {
                name: _text(plain_json(value, path=f"session.state[{name!r}]"))
                for name, value in state.items()
                if name not in _HOST_KEYS
            }
        except (CorruptStateError, TypeError, ValueError, RecursionError) as error:
            message = f"the turn's state in the session cannot be stored: {error}"
            raise RunStoppedError(Failed(InvalidAnswerError(message))) from error


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
