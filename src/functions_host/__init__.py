"""A local Azure Functions host with a Durable Task engine, for any Python function app."""
