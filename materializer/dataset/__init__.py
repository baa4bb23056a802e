"""Which videos a task has: files, names, labels, the predicate, and the scan that indexes what is new.

In the order of work: ``discover``, ``names``, ``labels``, ``predicate``, ``scan``, ``scan_worker``, ``dataset``.
"""

__all__: list[str] = []
