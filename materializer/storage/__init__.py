"""What lies where: the ledger of copies, tiers, codecs, eviction, recovery and garbage collection.

In the order of work:

- ``shelf``: the copies of one tier, as columns until somebody asks for one
- ``ledger``: what lies in the store and who reads it
- ``irreplaceable``: copies that cannot be made again, and when they leave
- ``error_events``: what could not be made, or not as it should be
- ``leases``: objects that are kept from leaving until a given time
- ``tiers``: the tiers of an open cache: reading from where a copy lies
- ``ratios``: how well objects pack, and when another sample may be taken
- ``codecs``: which codec an object gets, by measured costs
- ``eviction``: the active policy is asked; what happens when it fails
- ``found``: objects that the store has and the catalog does not tell of
- ``recover``: make catalog and store agree at start
- ``removal``: copies leave a cache that nobody has open
- ``gc``: `viewcache gc`: what no plan needs
"""

__all__: list[str] = []
