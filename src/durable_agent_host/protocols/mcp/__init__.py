"""Clients of MCP: agents are tools."""
