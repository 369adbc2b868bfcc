"""Everything with a `close` method closes at the end of its `with` block, also after an error."""

import pytest

from weakincentives.internal.closing import Closing


class Door(Closing):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_block_gives_the_object_and_closes_it_at_the_end() -> None:
    door = Door()

    with door as inside:
        assert inside is door
        assert door.closed == 0

    assert door.closed == 1


def test_an_error_closes_it_too_and_passes_through() -> None:
    door = Door()

    with pytest.raises(ZeroDivisionError), door:
        raise ZeroDivisionError

    assert door.closed == 1


def test_a_class_without_a_close_of_its_own_says_so() -> None:
    with pytest.raises(TypeError, match="close"):
        Closing()  # type: ignore[abstract]
