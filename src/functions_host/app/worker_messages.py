"""Plain values in the place of the protobuf messages that ``azure-functions-runtime`` builds while it indexes.

The runtime gets this module as its ``protos`` and looks up these classes by name.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(slots=True)
class BindingInfo:
    """One binding of a function; the class attributes are numbers of ``azure.functions`` enums."""

    undefined: ClassVar[int] = 0
    out: ClassVar[int] = 1
    inout: ClassVar[int] = 2

    type: str
    direction: int
    data_type: int | None = None


@dataclass(slots=True)
class RpcRetryOptions:
    """The host-level retry policy of a function."""

    max_retry_count: int
    retry_strategy: str
    delay_interval: Any = None
    minimum_interval: Any = None
    maximum_interval: Any = None


@dataclass(slots=True)
class RpcFunctionMetadata:
    """One indexed function; ``raw_bindings`` are JSON texts."""

    name: str
    function_id: str
    managed_dependency_enabled: bool
    directory: str
    script_file: str
    entry_point: str
    is_proxy: bool
    language: str
    bindings: dict[str, BindingInfo]
    raw_bindings: list[str]
    retry_options: RpcRetryOptions | None = None
    properties: dict[str, str] = field(default_factory=dict[str, str])
