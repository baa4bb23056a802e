"""Whether a catalog is of this release: the revision of its schema beside that of the code.

Told from two texts, with no database: also the process that answers SQL, which loads little, says it in these words.
"""

from viewcache import errors, migrations

__all__ = ["NONE_ON_POSTGRESQL", "is_older", "too_old"]

NONE_ON_POSTGRESQL = "the PostgreSQL database holds no catalog; `viewcache run` makes one"


def is_older(revision: str, where: str) -> bool:
    """Whether the revision must be upgraded.

    Args:
        revision: of the catalog.
        where: which catalog that is, for people.

    Raises:
        CatalogVersion: a newer release made it.
    """
    if revision != migrations.HEAD and not migrations.is_known(revision):
        raise errors.CatalogVersion(
            f"catalog {where} has revision {revision!r}, this viewcache works with {migrations.HEAD}: "
            "a newer viewcache made it; upgrade viewcache, or name another catalog"
        )
    return revision != migrations.HEAD


def too_old(where: str) -> errors.CatalogVersion:
    """What whoever may not upgrade an older catalog is told, with what does."""
    return errors.CatalogVersion(
        f"catalog {where} is older than this viewcache ({migrations.HEAD}); run `viewcache db upgrade` first"
    )
