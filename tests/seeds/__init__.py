"""The specifications' own examples, executed; a file for each subject."""
