"""What the running parts report of themselves: counters, stalls by cause, and the trace.

In the order of work:

- ``power``: the watts of a core, and the meters of a machine
- ``usage``: what is taken of cores and energy, by class and stage
- ``beside``: what is taken whatever is kept, a batch
- ``accounting``: writes that into the catalog, seldom
- ``observer``: what the running parts tell of themselves
- ``stalls``: why a reader waited, by cause
- ``snapshot``: all counters at one moment, as a value
- ``trace``: the observer that writes it down
- ``trace_file``: the file, bounded, written behind
"""

__all__: list[str] = []
