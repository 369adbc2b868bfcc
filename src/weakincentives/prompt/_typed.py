"""`PromptTemplate[Answer](...)`: a subscript that the class gets to know while it is constructed.

`typing` tells an object its subscript only afterwards, too late to check anything by it (and from
Python 3.13 swallows what the check would raise). So the subscript here becomes a keyword argument,
which may as well be written out: `PromptTemplate(..., output_type=Answer)`.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import PromptError, shown

__all__ = ["ParamsT", "ResultT", "Typed", "name_of"]

if TYPE_CHECKING:  # as in `_typevars`: to the checker each defaults to `Any`
    import typing_extensions

    ParamsT = typing_extensions.TypeVar("ParamsT", default=Any)
    ResultT = typing_extensions.TypeVar("ResultT", default=Any)
else:
    ParamsT = TypeVar("ParamsT")
    ResultT = TypeVar("ResultT")


class _Alias(GenericAlias):
    """A class with its type arguments; good for annotations, and calling it passes them on."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cls: Any = self.__origin__
        for name, wanted in zip(cls.subscript, self.__args__, strict=True):
            if isinstance(wanted, TypeVar):
                continue
            if kwargs.setdefault(name, wanted) is not wanted:
                raise PromptError(
                    f"expected one type, got two - `{cls.__name__}[{name_of(wanted)}]` with "
                    f"`{name}={shown(kwargs[name])}`; pass one of them"
                )
        return cls(*args, **kwargs)

    def __getitem__(self, items: Any) -> Any:  # fills in type variables
        cls: Any = self.__origin__
        return _Alias(cls, super().__getitem__(items).__args__)


class Typed:
    """Base of a generic class whose subscript is the keyword arguments named in `subscript`."""

    __slots__ = ()
    subscript: ClassVar[tuple[str, ...]] = ()

    def __class_getitem__(cls, items: Any) -> Any:
        # Generic checks the number of arguments, and makes None the type of None.
        return _Alias(cls, super().__class_getitem__(items).__args__)  # type: ignore[misc]


def name_of(wanted: Any) -> str:
    """A type's name for a message: `Answer`, `list[Answer]`."""
    if isinstance(wanted, type) and not isinstance(wanted, GenericAlias):
        return wanted.__qualname__
    return shown(wanted)
