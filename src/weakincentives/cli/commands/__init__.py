"""The commands: one module each, with two public functions.

`configure(parser)` adds its options, `run(args)` returns its exit code. With `RUNS_USER_CODE`, what
it prints is redacted at the file descriptors as well.
"""

__all__: list[str] = []
