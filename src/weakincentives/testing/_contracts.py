"""Where the contract suites come from: here pytest learns to explain their failed assertions.

It has to be told before the modules with the assertions are imported.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__package__}.{name}" for name in ("_asking", "_adapter_contract", "_served_contract"))
)

from ._adapter_contract import AdapterContract  # noqa: E402
from ._asking import Ask  # noqa: E402
from ._served_contract import ServedAdapterContract  # noqa: E402

__all__ = ["AdapterContract", "Ask", "ServedAdapterContract"]
