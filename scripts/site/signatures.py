"""Write defaults in the signatures of the API as users would: `None`, not `cast(Any, None)`."""

from __future__ import annotations

from typing import Any

from griffe import Attribute, Extension, Function

CAST = "cast(Any, None)"  # how a default of None satisfies a parameter of any type


class PlainDefaults(Extension):
    """Replaces casts in the defaults of each function and dataclass that griffe reads."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Change the defaults of a function."""
        for parameter in func.parameters:
            if str(parameter.default) == CAST:
                parameter.default = "None"

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Change the default of a field."""
        if str(attr.value) == CAST:
            attr.value = "None"
