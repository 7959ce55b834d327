"""Values of the parts of Gemini's contents."""

from typing import Any

from tests.durable_agent_host.provider_table.probes import MARK, Probe, probe, probe_arguments


def _part(**part: Any) -> dict[str, Any]:
    return {"type": "part", "part": part}


_SIGNED = {"thoughtSignature": f"{MARK}aa"}
_CODE = {"language": "PYTHON", "code": "1", "id": "c1"}
_RAN = {"outcome": "OUTCOME_OK", "output": "x", "id": "c1"}
_END = _part(codeExecutionResult=_RAN)
_SEARCH = {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "t1"}
_FOUND = {"toolType": "GOOGLE_SEARCH_WEB", "response": {"results": "x"}, "id": "t1"}

PROBES: tuple[Probe, ...] = (
    probe("text", "text", _part(text=MARK), is_answer=True),
    probe("text", "thoughtSignature", _part(text="x", **_SIGNED), is_answer=True),
    probe("thought", "text", _part(text=MARK, thought=True)),
    probe("executableCode", "code", _part(executableCode={**_CODE, "code": MARK}), _END),
    probe(
        "executableCode", "thoughtSignature", _part(executableCode=_CODE, **_SIGNED), _part(codeExecutionResult=_RAN)
    ),
    probe(
        "codeExecutionResult",
        "output",
        _part(executableCode=_CODE),
        _part(codeExecutionResult={**_RAN, "output": MARK}),
    ),
    probe("inlineData", "data", _part(inlineData={"mimeType": "image/png", "data": f"{MARK}aa"})),
    probe("toolCall", "args", _part(toolCall={**_SEARCH, "args": {"queries": [MARK]}}), _part(toolResponse=_FOUND)),
    probe("toolResponse", "response", _part(toolCall=_SEARCH), _part(toolResponse={**_FOUND, "response": {"a": MARK}})),
    probe_arguments("functionCall", "args"),
)
