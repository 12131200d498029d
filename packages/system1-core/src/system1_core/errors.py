"""What can go wrong, as types: one class per status a client may see, two for start-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

MISSING: Any = object()


class System1Error(Exception):
    """Root of everything a client may see: an HTTP `status`, an `error_type` and a message."""

    status: ClassVar[int] = 500
    error_type: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers the response must carry."""
        if self.retry_after_s is None:
            return {}
        # Retry-After counts whole seconds; the SDKs prefer the exact milliseconds beside it.
        return {
            "Retry-After": str(max(1, round(self.retry_after_s))),
            "retry-after-ms": str(round(self.retry_after_s * 1000)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One entry of a 422's `detail` list; `loc` begins with "body"."""

    loc: tuple[str | int, ...]
    msg: str
    type: str = "value_error"
    input: Any = field(default=MISSING)

    def as_json(self) -> dict[str, Any]:
        """The entry as the wire shows it, abridged: an error must not echo megabytes."""
        loc = [abridged(part, 256) if isinstance(part, str) else part for part in self.loc]
        body: dict[str, Any] = {"loc": loc, "msg": abridged(self.msg, 1_000), "type": self.type}
        if self.input is not MISSING:
            body["input"] = _shown(self.input)
        return body


def abridged(text: str, limit: int = 100) -> str:
    """`text`, or its beginning and an ellipsis."""
    return text if len(text) <= limit else text[:limit] + "…"


def _shown(value: Any) -> Any:
    """Short scalars as they are, the kind of everything else."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else f"integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return abridged(value)
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else repr(value)


class InvalidRequest(System1Error):
    """422: the request can never succeed; carries what is wrong, where."""

    status = 422
    error_type = "invalid_request_error"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(abridged("; ".join(problem.msg for problem in problems), 4_000))
        self.problems = tuple(problems)

    @classmethod
    def at(
        cls, loc: Sequence[str | int], msg: str, type: str = "value_error", input: Any = MISSING
    ) -> InvalidRequest:
        """One problem at `loc`, a path below "body"."""
        return cls([Problem(loc=("body", *loc), msg=msg, type=type, input=input)])


class AuthenticationFailed(System1Error):
    """401: no key, or a wrong one."""

    status = 401
    error_type = "authentication_error"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class PermissionDenied(System1Error):
    """403: a valid key that may not do this."""

    status = 403
    error_type = "permission_error"


class NotFound(System1Error):
    """404: no such model or path."""

    status = 404
    error_type = "not_found_error"


class MethodNotAllowed(System1Error):
    """405: the path exists, the method does not."""

    status = 405
    error_type = "method_not_allowed"


class BodyTimeout(System1Error):
    """408: the client did not deliver its body in time."""

    status = 408
    error_type = "request_timeout"

    @property
    def headers(self) -> Mapping[str, str]:
        # What still comes is no new request.
        return {"Connection": "close"}


class TooLarge(System1Error):
    """413: over a limit on size; names the value and the limit."""

    status = 413
    error_type = "request_too_large"


class UnsupportedEncoding(System1Error):
    """415: a Content-Encoding this server does not decode."""

    status = 415
    error_type = "unsupported_encoding"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Accept-Encoding": "zstd, gzip, deflate"}


class RateLimited(System1Error):
    """429: too many requests from this client."""

    status = 429
    error_type = "rate_limit_error"


class InferenceFailed(System1Error):
    """500: our fault; the message says nothing of the inside."""

    status = 500
    error_type = "internal_error"

    def __init__(self, message: str = "inference failed") -> None:
        super().__init__(message)


class DependencyFailed(System1Error):
    """502: a server this one needs is unreachable or answered wrongly."""

    status = 502
    error_type = "dependency_error"


class ModelUnavailable(System1Error):
    """503: loading, draining or failed."""

    status = 503
    error_type = "unavailable"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)


class DeadlineExceeded(System1Error):
    """504: the request's time ran out before its answer."""

    status = 504
    error_type = "deadline_exceeded"


class QueueFull(System1Error):
    """529: refused at admission, before any work."""

    status = 529
    error_type = "overloaded_error"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)


class DeviceLost(Exception):
    """An executor raises this when its device can run nothing any more; the engine then closes."""


class PluginError(Exception):
    """Start-up: a plugin is broken or clashes; names the distribution and the remedy."""


class CheckpointError(Exception):
    """Start-up: a checkpoint is not what it should be; names file, found, expected, remedy."""


class ConfigError(Exception):
    """Start-up: the command line or a setting is wrong; names the option and the remedy."""
