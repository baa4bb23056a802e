"""Read-only SQL and the status of a cache, from any process.

In the order of work:

- ``ask``: read-only SQL from any process; loads `api/queries/questions`
- ``status``: progress, budget, what reading waits for
"""

__all__: list[str] = []
