"""The function app: loading it, indexing its functions, calling them, showing its logs."""
