"""The command line: one module of commands for each thing that people do.

In the order of work:

- ``terminal``: data to stdout, words and progress to stderr
- ``tables``: values of plan, run and status as tables and words
- ``cost``: what status says of core seconds and energy
- ``arguments``: arguments that several commands take
- ``init``: init
- ``make``: plan, run
- ``profile``: profile
- ``demo``: demo
- ``look``: status, sql, lint
- ``show``: show
- ``page``: page, top
- ``top``: what top draws
- ``care``: verify, doctor, gc, forget, db upgrade
- ``evict``: evict
- ``serve``: serve, stop
- ``mount``: mount
- ``main``: the command line: commands, exit codes
"""

__all__: list[str] = []
