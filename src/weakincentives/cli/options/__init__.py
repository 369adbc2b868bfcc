"""Options that several commands share. Importing them loads nothing heavier than argparse.

parsing    numbers, shares and `key=value` pairs; options as words again
execution  which agent, how it runs, gates and output
settings   the fields of `EvalConfig`
sample_selection  which samples of a dataset
dataset_columns   which columns are inputs, outputs and ids
runs       the run store, and which run in it
queues     the mailboxes of a deployment, named by one URL
"""

__all__: list[str] = []
