"""Files of samples, read one record at a time.

input_files  open a file, a pipe or standard input
formats      which format and compression a file has, and where a record begins
sample_records  one JSON record to a value, or a defect with its location
column_names  which column of a row is the input of a sample, its expected output, its id
tabular_files  CSV, TSV and Parquet
yaml_files   YAML
type_info    what a type says about the JSON that fills it
reader       `read_rows`, `read_samples`: everything above put together

`Sample` and `Dataset` are in `evals/_types.py`, `load_jsonl` and the like in `evals/loaders.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .formats import Format as Format, format_of as format_of
    from .reader import Limits as Limits, read_rows as read_rows, read_samples as read_samples
else:
    from ...internal.lazy import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__)
