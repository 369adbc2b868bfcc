"""The output of the commands: text for people on a terminal, JSON for programs.

streams       stdout and stderr without secrets and without commands for CI servers
styled_text   lines of text: one line, ages, stderr
text_tables   the console of stdout, and tables that fit its width
views         one result in a line, and why it failed
json_output   runs as JSON
progress_bar  a run in progress
summary       the end of a run: verdict, details, next commands
sample_view   one sample in full
review_screen one output to review, and the keys that label it
comparison    two runs side by side
trajectories  two trajectories side by side
dead_letter_table  the messages of a dead letter queue
tracebacks    tracebacks of failed samples, with WINK_DEBUG=1
"""

__all__: list[str] = []
