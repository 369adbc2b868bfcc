"""Write defaults in the signatures of the API as users would: `None`, not `cast(Any, None)`."""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Extension, Function

CAST = "cast(Any, None)"  # how a default of None satisfies a parameter of any type
DECLARED = re.compile(r"setting\((\(\)|[^,]+),")  # of `eval_config`: the default comes first


def plain(default: Any) -> Any:
    """Return a default as users would write it."""
    declared = DECLARED.match(str(default))
    return declared[1] if declared else "None" if str(default) == CAST else default


class PlainDefaults(Extension):
    """Replaces casts and declarations in the defaults of functions and dataclasses."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Change the defaults of a function."""
        for parameter in func.parameters:
            parameter.default = plain(parameter.default)

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Change the default of a field."""
        attr.value = plain(attr.value)
