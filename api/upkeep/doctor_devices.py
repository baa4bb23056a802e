"""What `viewcache doctor` says of what `viewcache profile` measured: rates of devices, or that it was elsewhere."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

from viewcache.api.config.find import Located
from viewcache.api.queries.ask import copy_catalog
from viewcache.api.text import size
from viewcache.api.upkeep.doctor_cache import Finding, Health
from viewcache.catalog import Catalog
from viewcache.catalog.opening import is_postgresql
from viewcache.catalog.private import private_folder
from viewcache.errors import ViewcacheError
from viewcache.materializer.planning.devices import Devices, host_of, known_devices

__all__ = ["devices"]


def devices(located: Located) -> Iterator[Finding]:
    """Whether rates of devices are known, and of this machine; nothing is said where none were measured."""
    try:
        known = _known(located)
    except ViewcacheError:  # the check of the catalog says why it cannot be read
        return
    day = time.strftime("%Y-%m-%d", time.gmtime(known.at_s))
    if known.other_host:
        what = f"measured on {day} on another machine, with other cores or another mount: ignored here"
        yield Finding(Health.WARN, "devices", what, "`viewcache profile` measures this one")
    elif known.bytes_per_s:
        rates = ", ".join(f"{tier} {size(rate)} a second" for tier, rate in sorted(known.bytes_per_s.items()))
        yield Finding(Health.OK, "devices", f"{rates}, read cold on {day}")
    elif known.at_s:
        what = f"measured on {day}, and none counts: memory has the files, or they are too few to tell"
        yield Finding(Health.OK, "devices", what)


def _known(located: Located) -> Devices:
    host = host_of(located.root)
    with ExitStack() as held:
        if is_postgresql(located.catalog):
            where = located.catalog
            return known_devices(held.enter_context(Catalog.open(where, create=False, writable=False)), host)
        folder = held.enter_context(private_folder())
        if not copy_catalog(located.catalog, folder):
            return Devices()
        return known_devices(held.enter_context(Catalog.open(folder, create=False)), host)
