"""Nothing reads a session, and nothing of the host starts, without somebody's say."""

from tests.house.source import SRC

PACKAGE = SRC / "durable_agent_host"


def modules_with(text: str) -> set[str]:
    """List the modules that contain a call, but for the templates of apps."""
    modules = (path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts)
    return {path.relative_to(PACKAGE).as_posix() for path in modules if text in path.read_text()}


def test_states_of_sessions_are_read_in_one_module():
    """It checks an access before it returns a state, and reads with the durable client."""
    assert modules_with(".read_entity_state(") == {"durable/session_documents.py", "durable/task_hub.py"}


def test_every_access_of_the_app_is_in_one_file():
    """Whoever wants to know what reads sessions of all owners finds it there, with the reason."""
    assert modules_with("AppAccess(") == {"model/access.py"}


def test_orchestrations_of_the_host_are_registered_in_one_function():
    """It lets only the app start them; workflows check their own inputs."""
    assert modules_with("orchestration_trigger(") == {
        "durable/function_registration.py",
        "durable/workflow_functions.py",
    }
