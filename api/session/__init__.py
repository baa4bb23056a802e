"""``viewcache.open``: the life of a cache in this process.

In the order of work:

- ``storage``: an open cache's tiers, recovered, and their ledger
- ``making``: making ahead: predicted, progress, measured
- ``cache``: `viewcache.open`: the life of a cache in this process
"""

__all__: list[str] = []
