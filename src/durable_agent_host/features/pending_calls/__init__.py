"""Calls that wait for an approval, for the client, or for a decision about a doubt."""
