"""What we do: task → graph → plan → decode → augment → store; who is served first, what leaves, what survives.

Its folders, lowest first; a folder imports only those above it in this list: media, ops, op_workers, dataset, planning,
workers, storage, telemetry, scheduling, retention, tasks, reading, simulation. The files beside them are for all:

- ``spec``: what a task and a cache are: frozen values
- ``choices``: the closed sets of words that a configuration chooses from
- ``sampling``: which frames make a clip, part of it
- ``places``: several places as one dataset, by one URI
- ``randomness``: random numbers with addresses
- ``keys``: content keys of objects
- ``arrays``: what NumPy has too, but slower
- ``column``: many values that are held together, and are objects one by one
- ``clock``: seconds by stage, in workers and readers
- ``limits``: what a worker process may use
- ``freed_memory``: memory that allocators keep for themselves, given back
- ``collecting``: work on many small objects without looking for cyclic garbage
- ``gate``: calls to an open cache: closing under them, and Ctrl-C in the main thread
- ``shown``: a value as a small table in a notebook
- ``field_values``: what a batch has of further columns of the label table
- ``child``: starting a worker or a scanner
"""

__all__: list[str] = []
