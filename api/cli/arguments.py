"""Arguments that several commands take."""

import argparse

__all__ = ["add_where"]


def add_where(parser: argparse.ArgumentParser) -> None:
    """Which cache a command is about; see `locate`."""
    parser.add_argument(
        "where",
        nargs="?",
        metavar="CONFIG|DIR",
        help="a YAML file, or a cache's folder (default: as `viewcache status`)",
    )
