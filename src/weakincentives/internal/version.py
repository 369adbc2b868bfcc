"""The version of this package.

A constant, because `importlib.metadata` takes 10 ms to look it up: a third of a small run.
"""

__version__ = "0.2.0"
