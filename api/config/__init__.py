"""Configuration: a safe subset of YAML to frozen specs, the table of keys, the schema, and finding a cache.

In the order of work: ``yaml_subset``, ``kinds``, ``keys``, ``eviction``, ``values``, ``tiers``, ``steps``, ``load``,
``schema``, ``find``.
"""

__all__: list[str] = []
