"""Simulated crashes within a process: a store that fails from one moment on."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from functions_host.engine.crash_points import arm
from functions_host.engine.sqlite_store import SqliteStore


class CrashError(BaseException):
    """The simulated process has died; not an ``Exception``, so the engine cannot catch it."""


class MortalStore(SqliteStore):
    """A store that can die: from then on every call raises ``CrashError``.

    Args:
        path: of the file.
        on_death: called once, at death.
    """

    def __init__(self, path: Path, on_death: Callable[[], None]) -> None:
        super().__init__(path)
        self._on_death = on_death
        self._is_dead = False
        self._commits_left = 0
        read = self.read
        transaction = self._transaction

        def read_alive(sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
            self._check()
            return read(sql, values)

        @contextmanager
        def count_transaction(kind: str) -> Generator[Any]:
            self._check()
            with transaction(kind) as connection:
                yield connection
            if self._commits_left:
                self._commits_left -= 1
                if self._commits_left == 0:
                    self.die()

        self.read = read_alive
        self._transaction = count_transaction

    def die_at(self, point: str) -> None:
        """Plan the death for a crash point; see ``engine.crash_points``.

        Raises:
            ValueError: there is no such point.
        """
        arm(point, self.die)

    def die_after(self, commits: int) -> None:
        """Plan the death right after the n-th commit from now."""
        self._commits_left = commits

    def die(self) -> None:
        """Die.

        Raises:
            CrashError: always.
        """
        if not self._is_dead:
            self._is_dead = True
            self._on_death()
        raise CrashError

    def _check(self) -> None:
        if self._is_dead:
            raise CrashError
