"""``viewcache.open``: the life of a cache in this process.

In the order of work:

- ``storage``: an open cache's tiers, recovered, and their ledger
- ``placed``: errors of a task begin with its place in the configuration
- ``making``: making ahead: predicted, progress, measured
- ``owner``: who owns a store: locks, catalog, tiers, workers, tasks
- ``cache``: `viewcache.open`: the life of a cache in this process
"""

__all__: list[str] = []
