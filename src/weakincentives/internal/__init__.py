"""Shared by all packages, and not part of the public interface.

arithmetic    exact arithmetic in text
atomic_write  files that appear whole or not at all
backoff       the delay before a retry
checks        arguments and fields: expected, got, where, what to do
closing       `with` for everything that has a `close` method
concurrency   gather, exception groups
descriptors   file descriptors of ours, where user code seldom closes them
text_differences  where two values differ, and texts word by word
error_details the type of an error, its place, and its traceback
version       the version of this package
encodings     the encodings that a secret can be in
escaping      control characters made visible
event_loop    the one event loop behind synchronous functions
forks         processes that user code forked, and that return into our code
formatting    durations, money, numbers and events as people read them
frozen        frozen, slotted, generic dataclasses before Python 3.13
garbage       the garbage collector, paused while many objects are made
git           git that changes nothing, in the repository of the working directory
http_server   an HTTP server on the standard library, for health checks and tests
ids           UUIDs
interrupts    Ctrl-C as one line
isolation     user code in a separate task
lazy          names of a package that are loaded when first used
limited       untrusted Python code, in a process with limits
matching      which items of two sequences correspond, in bounded work
names         names of functions, classes and objects
public_module  public objects say where users find them
redaction     secrets in texts and bytes
slots         concurrency slots that a sleeping task lends to others
sqlite        connections to SQLite
state_cache   values that are computed again only if their state has changed
threads       synchronous code in daemon threads
typevars      type variables with defaults
wire_names    stable names of our types on disk and on the wire
"""

__all__: list[str] = []
