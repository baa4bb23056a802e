"""Read-only SQL and the status of a cache, from any process.

In the order of work: ``ask``, ``status``.
"""

__all__: list[str] = []
