"""Everything with a `close` method closes at the end of its `with` block, also after an error."""

import pytest

from weakincentives.internal.closing import Closing


class Resource(Closing):
    """A resource that counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_with_block_yields_the_object_and_closes_it() -> None:
    resource = Resource()

    with resource as inside:
        assert inside is resource
        assert resource.closed == 0

    assert resource.closed == 1


def test_an_error_closes_the_object_and_is_raised() -> None:
    resource = Resource()

    with pytest.raises(ZeroDivisionError), resource:
        raise ZeroDivisionError

    assert resource.closed == 1


def test_a_class_without_a_close_method_cannot_be_created() -> None:
    with pytest.raises(TypeError, match="close"):
        Closing()  # type: ignore[abstract]
