"""Requests kept out of logs: at DEBUG level the libraries below fsspec show tokens and signatures."""

import logging

__all__ = ["quiet_requests"]

_LIBRARIES = ("botocore", "aiobotocore", "s3fs", "azure", "google.auth", "gcsfs")


def quiet_requests() -> None:
    """Log nothing of these libraries below INFO; levels that were set higher stay."""
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)
