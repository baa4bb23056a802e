"""Clips for the dispatcher's tests."""

from tests.faults.fixtures import empty_store, no_suspects, store, videos

__all__ = ["empty_store", "no_suspects", "store", "videos"]
