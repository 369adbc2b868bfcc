"""YAML to JSON records: a list of samples, one under `samples`, or a document for each.

1. Texts stay texts: `no`, `0012` and `2024-01-01` are not booleans, octal numbers or dates. Only
   `null`, `true`, `false` and decimal numbers are not texts, as in JSON.
2. No tag creates an object. An alias may stand for a text or a number, not for a collection, so a
   small file cannot become a large one.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

from ... import serde
from ...errors import SerializationError
from .formats import READ_ERRORS, Record, Source, optional
from .sample_records import Defect, explain, not_utf8

_RESOLVED = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}


def yaml_records(file: io.BufferedReader, source: Source, max_bytes: int) -> Iterator[Record]:
    """Yield the samples of a file, each with the line that it starts in. It is read whole."""
    yaml = optional("yaml")
    try:
        data = source.read_whole(file)
        text = data.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(data, error).at(source.path, 1) from None
    except READ_ERRORS as error:
        raise source.unreadable(error, 1) from None
    line = 1
    try:
        loader = _loader_type()(text)
        documents = 0
        while loader.check_node():
            loader.aliased_bytes, loader.max_bytes = 0, max_bytes
            document = loader.get_node()
            root = "$" if not documents else f"$[{documents}]"
            documents += 1
            for path, node in _samples_in(document, root, yaml):
                line = node.start_mark.line + 1
                value = loader.construct_object(node, deep=True)
                loader.constructed_objects.clear()
                yield line, path, serde.encode(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = line if mark is None else mark.line + 1
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise Defect(f"expected YAML, got: {problem}").at(source.path, line) from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise Defect(f"expected YAML, got: {problem}").at(source.path, line) from None
    except (RecursionError, SerializationError) as error:
        raise explain(error).at(source.path, line) from None
    except Defect as defect:
        raise defect.at(source.path, 1) from None


def _samples_in(document: Any, root: str, yaml: Any) -> Iterator[tuple[str, Any]]:
    """Yield the nodes of the samples in a document, with their paths."""
    if isinstance(document, yaml.MappingNode):
        for key, value in document.value:
            if key.value == "samples" and isinstance(value, yaml.SequenceNode):
                root, document = f"{root}.samples", value
    if isinstance(document, yaml.SequenceNode):
        for index, node in enumerate(document.value):
            yield f"{root}[{index}]", node
    elif document.tag != "tag:yaml.org,2002:null" or document.value:
        yield root, document  # it is not empty, as one after a last `---` is


@lru_cache(maxsize=1)
def _loader_type() -> Any:
    """Return a safe loader with the rules of this file; made when the package is there."""
    yaml = optional("yaml")

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
        yaml_constructors: ClassVar[dict[str, Any]] = dict(yaml.SafeLoader.yaml_constructors)
        aliased_bytes = max_bytes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            aliased = self.peek_event() if self.check_event(yaml.AliasEvent) else None
            node = super().compose_node(parent, index)
            if aliased is not None:
                size = len(node.value) if isinstance(node, yaml.ScalarNode) else self.max_bytes + 1
                self.aliased_bytes += size
                if self.aliased_bytes > self.max_bytes:
                    raise _error(
                        yaml, aliased, f"the alias *{aliased.anchor} of a collection or of a long "
                        "text - write it out"
                    )  # fmt: skip
            return node

    def construct_mapping(self: Any, node: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _error(yaml, key_node, f"the key {key!r}, which is not text - quote it")
            if key in made:
                raise _error(yaml, key_node, f"the key `{key}` twice")
            made[key] = self.construct_object(value_node, deep=True)
        return made

    def construct_float(self: Any, node: Any) -> float:
        number = float(node.value.replace(".inf", "inf").replace(".nan", "nan").lower())
        if not math.isfinite(number):
            raise _error(yaml, node, f"{node.value}, which is not a finite number")
        return number

    def construct_int(_: Any, node: Any) -> int:
        try:
            return int(node.value)
        except ValueError:  # Python reads 4,300 digits
            raise _error(yaml, node, f"a number of {len(node.value):,} digits") from None

    for name, (pattern, first) in _RESOLVED.items():
        Loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), first
        )
    Loader.add_constructor("tag:yaml.org,2002:map", construct_mapping)
    Loader.add_constructor("tag:yaml.org,2002:int", construct_int)
    Loader.add_constructor("tag:yaml.org,2002:float", construct_float)
    for name in ("binary", "timestamp", "omap", "pairs", "set"):
        Loader.yaml_constructors.pop(f"tag:yaml.org,2002:{name}", None)
    return Loader


def _error(yaml: Any, place: Any, problem: str) -> Exception:
    error: Exception = yaml.constructor.ConstructorError(None, None, problem, place.start_mark)
    return error
