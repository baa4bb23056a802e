"""Care of a cache that may be closed: eviction, garbage collection, and the doctor.

In the order of work:

- ``owned``: the tiers whose bytes outlive a process, for `verify`, `gc` and `evict`
- ``evict``: giving up objects by hand
- ``gc``: `viewcache gc`: a cache that nobody has open, without what nothing needs
- ``scan``: `viewcache scan`: every packet of the datasets, ahead of training
- ``doctor_cache``: of that the cache's own files: catalog, journal, objects, failures
- ``doctor_devices``: of what devices were measured to give
- ``doctor``: the machine and the cache, line by line
"""

__all__: list[str] = []
