"""Set-up of the adapters' tests."""

from tests.authorities import one_authority

__all__ = ["one_authority"]
