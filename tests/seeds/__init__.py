"""The specifications' own examples, executed; one file a specification, grown issue by issue."""
