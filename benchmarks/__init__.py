"""Measurements against rivals; each module runs as ``python -m benchmarks.NAME --json FILE``."""

__all__: list[str] = []
