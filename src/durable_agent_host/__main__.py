"""Run the command ``durable-agent-host``: ``python -m durable_agent_host``."""

from durable_agent_host.cli.main import main

if __name__ == "__main__":
    main()
