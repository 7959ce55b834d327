"""Errors of the Responses API."""

from dataclasses import dataclass

from practice_model.dialects.responses.items import Json


@dataclass(frozen=True)
class HttpError:
    """An HTTP error instead of a response; `retry_after` is in seconds."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    kind: str = "invalid_request_error"
    retry_after: float | None = None

    @property
    def body(self) -> Json:
        """The error body of the API."""
        error_fields = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error_fields}
