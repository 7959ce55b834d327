"""Pieces in block blobs of Azure Storage."""
