"""The version of this package.

A constant, since `importlib.metadata` takes 10 ms to look it up, which is half of a small run.
"""

__version__ = "0.2.0"
