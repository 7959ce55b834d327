"""Files and todo lists that the framework's context providers keep for each session: they are part of the session.

The framework's stores keep them in a folder or in the memory of a process, where another process does not find them
and a deletion or a fork does not reach them. A hosted agent gets copies of these providers, which keep the same data in
the state of the framework's session: it is journaled with the step that writes it, committed with the turn, copied with
a fork and erased with the session. What a provider shares between sessions, because it has a ``scope`` or is not scoped
to sessions, is the app's.
"""

import copy
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, cast

import agent_framework as framework  # its providers and their stores are loaded when they are first named

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.errors import RegistrationError

_FOLDER: Final = "session"
"""Replaces the session's id in the paths of its files: a fork has another id."""


def keep_in_session(provider: Any) -> Any:
    """Return a copy of a context provider that keeps its data in the session; the provider itself when it has none."""
    stores = _list_session_stores(provider)
    if not stores or type(provider.store) not in stores:
        return provider
    if not _keeps_files(provider):
        provider = copy.copy(provider)
        provider.store = stores[-1]()
        return provider
    return copy_with_mixin(provider, _FilesInSession)


def reject_external_stores(name: str, agent: Any) -> None:
    """Refuse an agent whose providers keep data of its sessions where the host cannot.

    Raises:
        RegistrationError: it would outlive the session.
    """
    for provider in getattr(agent, "context_providers", ()):
        stores = _list_session_stores(provider)
        if stores and type(provider.store) not in stores:
            raise RegistrationError(
                f"agent {name!r} cannot be hosted: {type(provider).__name__} ({provider.source_id}) keeps data of each "
                f"session in a {type(provider.store).__name__}, which the host can neither fork nor delete with the "
                f"session: use {stores[-1].__name__}, whose data the host keeps in the session"
            )


def _list_session_stores(provider: Any) -> tuple[type[Any], ...]:
    """List the stores whose data of a session the host can keep; empty for providers that keep none by session."""
    if getattr(provider, "store", None) is None:
        return ()
    if _keeps_files(provider):
        return (framework.FileSystemAgentFileStore, framework.InMemoryAgentFileStore)
    if isinstance(provider, framework.TodoProvider):
        return (framework.TodoFileStore, framework.TodoSessionStore)
    return ()


def _keeps_files(provider: Any) -> bool:
    match cast("object", provider):
        case framework.FileMemoryProvider():
            return not provider.scope
        case framework.FileAccessProvider():
            return provider.session_scoped and not provider.scope
        case _:
            return False


class _FilesInSession:
    """The override; stands before the provider's own class in the method resolution order."""

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        in_run = copy.copy(cast("Any", self))
        files = cast("Any", framework.InMemoryAgentFileStore())
        files._files = _FilesInState(session.state, f"{in_run.source_id}/")  # noqa: SLF001 - of core 1.23
        in_run.store = files
        in_run.scope = _FOLDER
        provider: Any = super(_FilesInSession, in_run)
        await provider.before_run(agent=agent, session=session, context=context, state=state)


class _FilesInState(MutableMapping[str, tuple[str, str]]):
    """The files of `InMemoryAgentFileStore`, each under a name of its own: only those that change are journaled."""

    def __init__(self, state: dict[str, Any], prefix: str) -> None:
        self._state = state
        self._prefix = prefix

    def __getitem__(self, path: str) -> tuple[str, str]:
        return self._state[self._prefix + path]

    def __setitem__(self, path: str, file: tuple[str, str]) -> None:
        self._state[self._prefix + path] = [*file]

    def __delitem__(self, path: str) -> None:
        del self._state[self._prefix + path]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in [*self._state] if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
