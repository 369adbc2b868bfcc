"""`weakincentives.evals.statistics`: everything in `stats`, under the name that the docs use."""

from .stats import *  # noqa: F403
