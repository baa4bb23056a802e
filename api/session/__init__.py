"""The life of a cache in this process.

In the order of work:

- ``storage``: an open cache's tiers, recovered, and their ledger
- ``sql``: SQL from Python, as an Arrow table
- ``made``: how far making ahead is, as a plain value
- ``making``: making ahead: predicted, progress, measured
- ``admitting``: whether a task that another process describes is the one that is open
- ``counting``: all counters of an open cache, from its parts
- ``observing``: the observer of an open cache, and its accounts
- ``owner``: who owns a store: locks, catalog, tiers, workers, tasks
- ``reads``: what a cache gives to read and to look at, whoever owns it
- ``opened``: the caches that are open in this process
- ``cache``: a cache that this process owns
"""

__all__: list[str] = []
