"""Keys of the values that are kept for a run (`RunStore.keep`): a prefix, and the id of the run."""

SUBMISSION = "submission:"
QUEUE_STATE = "queue-state:"
MOVED = "moved:"  # differs once rows of a run that were stored have another place
OUTCOME = "eval:"  # the prefix of a worker's result, and a hash of its key
