"""Validation of requests: what the live APIs reject. All functions are pure."""
