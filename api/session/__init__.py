"""``viewcache.open``: the life of a cache in this process.

In the order of work: ``storage``, ``making``, ``cache``.
"""

__all__: list[str] = []
