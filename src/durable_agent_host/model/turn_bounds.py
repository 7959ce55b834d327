"""What one turn may cost, whatever its model's service sends and its tools return."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelBounds:
    """Bounds of a turn; each is a setting. A turn that passes one fails, and says which setting it was.

    Attributes:
        answer_bytes: of one answer of the model's service, decompressed: room for a dozen generated images, which a
            stream repeats up to five times.
        line_bytes: of one line of a streamed answer: the last event of a stream repeats all of it.
        turn_bytes: of all answers in one attempt of a turn.
        answer_seconds: from a model call to the end of its answer, whether or not something comes meanwhile.
        model_calls: of one turn.
        calls_at_once: tool calls of one answer.
        argument_bytes: of one tool call.
        tool_result_bytes: of one tool call; the model is told instead that the result was too large.
    """

    answer_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 32 * 1024 * 1024
    turn_bytes: int = 256 * 1024 * 1024
    answer_seconds: float = 1200.0
    model_calls: int = 100
    calls_at_once: int = 128
    argument_bytes: int = 4 * 1024 * 1024
    tool_result_bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True)
class KeptBounds:
    """How much is kept of what is sent to a model's service and comes back; all but the last are settings.

    Attributes:
        call_bytes: of one request or one answer, as far as it differs from the one before it; 0 keeps nothing.
        turn_bytes: of all of one attempt of a turn.
        retention_seconds: how long logs of turns are kept, at least.
    """

    call_bytes: int = 256 * 1024
    turn_bytes: int = 1024 * 1024
    retention_seconds: float = 168 * 3600.0
