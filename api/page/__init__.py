"""A cache at a glance: what the page in a browser and ``viewcache top`` show, as values, and the page's server.

In the order of work:

- ``overview``: all that is shown at one moment, as frozen values with units
- ``lateness``: which of the batches that are due next will be late
- ``gather``: an overview, from the catalog and the service
- ``watcher``: the latest overview, at a bounded cost however often it is asked for
- ``stored_clips``: the clips of one batch, as they lie in the store, as pictures
- ``first_frame``: the first frame of a video that can be decoded, by a process with limits
- ``first_frame_worker``: the body of that process
- ``access``: who may see the page
- ``server``: the page's HTTP server, on this machine only
"""

__all__: list[str] = []
