"""A local Azure Functions host with a Durable Task engine, for Python function apps; knows nothing of agents."""
