"""What lies where: the ledger of copies, tiers, codecs, eviction, recovery and garbage collection.

In the order of work: ``ledger``, ``leases``, ``tiers``, ``codecs``, ``eviction``, ``recover``, ``gc``.
"""

__all__: list[str] = []
