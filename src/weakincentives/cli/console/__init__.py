"""The output of the commands: text for people on a terminal, JSON for programs.

streams       stdout and stderr without secrets and without commands for CI servers
text          lines of text: one line, ages, stderr
tables        the console of stdout, and tables that fit its width
views         one result in a line, and why it failed
documents     runs as JSON
progress      a run in progress
summary       the end of a run: verdict, details, next commands
sample_view   one sample in full
review_screen one output to review, and the keys that label it
comparison    two runs side by side
dead_letters  the messages of a dead letter queue
tracebacks    tracebacks of failed samples, with WINK_DEBUG=1
"""

__all__: list[str] = []
