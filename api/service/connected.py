"""A session of a client with one run of the service: its connections and descriptors."""

import socket
import weakref
from dataclasses import dataclass, field

from viewcache.api.service import answers
from viewcache.store.client_tiers import ClientTiers

__all__ = ["Connected"]


@dataclass(slots=True, eq=False)
class Connected:
    """A session with one run of the service."""

    welcome: answers.Welcome
    tiers: ClientTiers
    control: socket.socket
    lines: list[socket.socket]
    """Further connections that nobody uses just now."""
    all_lines: "weakref.WeakSet[socket.socket]" = field(default_factory=weakref.WeakSet)
    """These and those in use."""

    def close_inherited(self) -> None:
        """In a forked child: close also those that a thread of the parent uses, which the child does not have."""
        for line in list(self.all_lines):
            line.close()
        self.close()

    def close(self) -> None:
        """Close all connections and descriptors."""
        for line in (*self.lines, self.control):
            line.close()
        self.lines.clear()
        self.tiers.close()
