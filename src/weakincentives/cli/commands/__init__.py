"""The commands: one module each, with two public functions.

`configure(parser)` adds its options, `run(args)` returns its exit code.
"""

__all__: list[str] = []
