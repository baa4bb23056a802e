"""Care of a cache that may be closed: eviction, garbage collection, and the doctor.

In the order of work: ``owned``, ``evict``, ``gc``, ``doctor_cache``, ``doctor``.
"""

__all__: list[str] = []
