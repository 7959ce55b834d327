"""A context variable that does not keep its value alive."""

from contextvars import ContextVar, Token
from weakref import ref


class WeakContextVar[T]:
    """A context variable for what belongs to one run; whoever sets it keeps the value.

    A timer keeps its context until it is due, a cancelled one too, unless most timers of its loop are cancelled. So a
    plain variable keeps a run, with its whole conversation, for as long as the longest timeout that was set in it.

    Args:
        name: for debuggers.
    """

    def __init__(self, name: str) -> None:
        self._var: ContextVar[ref[T] | None] = ContextVar(name, default=None)

    def get(self) -> T | None:
        """Return the value; None when there is none, or when nothing else refers to it any more."""
        found = self._var.get()
        return found() if found is not None else None

    def set(self, value: T | None) -> "Token[ref[T] | None]":
        """Set the value in the current context; returns what `reset` takes."""
        return self._var.set(ref(value) if value is not None else None)

    def reset(self, token: "Token[ref[T] | None]") -> None:
        """Put the value back that was there before a `set`."""
        self._var.reset(token)
