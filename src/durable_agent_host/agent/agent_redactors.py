"""The redactors of an app's agents."""

from collections.abc import Iterator, Mapping

from durable_agent_host.errors import RegistrationError
from durable_agent_host.hook_validation import check_hook
from durable_agent_host.redaction import add_redaction
from durable_agent_host.turn.turn_redactor import Redact, Redactor


class Redactors(Mapping[str, Redactor]):
    """The redactors of an app's agents, by name; only agents with redaction are included.

    Args:
        default: for agents without their own; None for nothing.
    """

    def __init__(self, default: Redact | None) -> None:
        self._default = default
        self._redactors: dict[str, Redactor] = {}

    def add(self, name: str, redact: Redact | None, why_not: str = "") -> None:
        """Register what is redacted for an agent; it also applies to all errors and log lines.

        Raises:
            RegistrationError: something would be, the function is not callable, or it fails for any text.
        """
        if (redact := redact or self._default) is not None:
            check_hook("redact", redact, "content", is_plain=True)
            if why_not:
                raise RegistrationError(f"agent {name!r} cannot be redacted: {why_not}")
            same = (candidate for candidate in self._redactors.values() if candidate.does(redact))
            redactor = next(same, None) or Redactor(redact)
            try:
                redactor.check()
            except ValueError as error:
                raise RegistrationError(f"agent {name!r} cannot have its 'redact': {error}") from None
            self._redactors[name] = redactor
            add_redaction(redactor.text_or_mask)

    def __getitem__(self, name: str) -> Redactor:
        """Return the redactor of an agent."""
        return self._redactors[name]

    def __iter__(self) -> Iterator[str]:
        """List the agents."""
        return iter(self._redactors)

    def __len__(self) -> int:
        """Count the agents."""
        return len(self._redactors)
