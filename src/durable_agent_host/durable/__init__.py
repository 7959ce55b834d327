"""The only package that knows the Azure Durable Functions SDK."""
