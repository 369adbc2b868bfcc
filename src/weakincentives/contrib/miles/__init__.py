"""RadixArk's miles: our evaluators as its rewards, our buffer as its data, our rollouts in it.

rewards  `miles_reward`, for `--custom-rm-path`; needs no package
data     `miles_data_source`, for `--data-source-path`
samples  `miles_sample`: a rollout as a sample of miles
package  the modules of miles, or how to install them

Both paths name an attribute of a module of yours.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .data import miles_data_source as miles_data_source
    from .rewards import miles_reward as miles_reward
    from .samples import miles_sample as miles_sample
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
