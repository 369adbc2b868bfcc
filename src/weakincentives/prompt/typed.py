"""Type arguments that a class gets in its constructor: `PromptTemplate[Answer](...)`.

`typing` sets the type arguments of an object only after its construction, too late to check them
(and since Python 3.13 it swallows errors of the check). So here they become keyword arguments,
which can also be passed explicitly: `PromptTemplate(..., output_type=Answer)`.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import PromptError, short_repr

if TYPE_CHECKING:  # as in `internal/typevars.py`: for the checker each defaults to `Any`
    import typing_extensions

    ParamsT = typing_extensions.TypeVar("ParamsT", default=Any)
    ResultT = typing_extensions.TypeVar("ResultT", default=Any)
else:
    ParamsT = TypeVar("ParamsT")
    ResultT = TypeVar("ResultT")


class _Alias(GenericAlias):
    """A class with its type arguments; a call passes them on as keyword arguments."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cls: Any = self.__origin__
        for name, wanted in zip(cls.subscript, self.__args__, strict=True):
            if isinstance(wanted, TypeVar):
                continue
            if kwargs.setdefault(name, wanted) is not wanted:
                raise PromptError(
                    f"expected one type, got two - `{cls.__name__}[{type_label(wanted)}]` with "
                    f"`{name}={short_repr(kwargs[name])}`; pass one of them"
                )
        return cls(*args, **kwargs)

    def __getitem__(self, items: Any) -> Any:  # fills in type variables
        cls: Any = self.__origin__
        return _Alias(cls, super().__getitem__(items).__args__)


class Typed:
    """Base of a generic class whose type arguments become the keywords named in `subscript`."""

    __slots__ = ()
    subscript: ClassVar[tuple[str, ...]] = ()

    def __class_getitem__(cls, items: Any) -> Any:
        # Generic checks the number of arguments, and converts None to its type.
        return _Alias(cls, super().__class_getitem__(items).__args__)  # type: ignore[misc]


def type_label(wanted: Any) -> str:
    """Return a type's name for a message: `Answer`, `list[Answer]`."""
    if isinstance(wanted, type) and not isinstance(wanted, GenericAlias):
        return wanted.__qualname__
    return short_repr(wanted)
