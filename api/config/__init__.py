"""Configuration: a safe subset of YAML to frozen specs, the table of keys, the schema, and finding a cache.

In the order of work:

- ``yaml_subset``: the safe subset of YAML, with places
- ``kinds``: what a key may hold
- ``eviction_keys``: the keys of `cache.eviction`
- ``power_keys``: the keys of `cache.power`
- ``op_worker_keys``: the keys of `cache.op_workers`
- ``audio_keys``: the keys of `dataset.audio`
- ``intermediate_keys``: the keys of `dataset.intermediate`
- ``split_keys``: the keys of `dataset.split`
- ``dataset_keys``: the keys of a task
- ``keys``: the one table of keys
- ``problems``: where mistakes are reported: the first is raised, or all are collected
- ``eviction``: `cache.eviction`
- ``values``: typed values, checked against it
- ``entries``: the entries of one mapping, and what each is worth
- ``media``: whether a task is of videos or of images, and which keys that leaves
- ``tiers``: where bytes lie: one folder, or tiers
- ``steps``: steps, branches and ops
- ``op_workers``: `cache.op_workers`
- ``sampling``: how many frames a clip has, and how far apart
- ``mixing``: whether the clips of a task can be mixed
- ``audio``: the audio of clips, and how many samples that are
- ``intermediate``: the loss that a task allows
- ``apart``: where a task's videos may lie
- ``labels``: the label table, names of classes, columns that come with a batch
- ``split``: how a dataset is parted, and which part a task has
- ``load``: files, text or a mapping to specs
- ``placed``: errors of a task begin with its place in the configuration
- ``settings``: those of a cache that is open, and what a configuration says otherwise
- ``documents``: a configuration on its way to another process
- ``schema``: the JSON Schema and `docs/config.md`, from the same table
- ``find``: which cache a command is about
"""

__all__: list[str] = []
