"""The tables of the run store's file, and how each version of it became the next one."""

from __future__ import annotations

from .columns import add_columns, create_table, figures

_FIRST_RUN_CHECKSUM = (
    "run_checksum(run_id, created, finished, CAST(status AS BLOB), CAST(note AS BLOB))"
)
_SECOND_RUN_CHECKSUM = f"{_FIRST_RUN_CHECKSUM[:-1]}, CAST(stop_reason AS BLOB))"
RUN_CHECKSUM = f"{_SECOND_RUN_CHECKSUM[:-1]}, iif(finished IS NULL, NULL, active))"
"""SQL: the checksum of a run, to compare with its column `checksum`, if it has one."""


def _sums(figures: str) -> str:
    return (
        "count(*) AS count, coalesce(sum(passed), 0) AS passed, coalesce(sum(error), 0) AS errors, "
        f"coalesce(sum({figures}), 0) AS figures, coalesce(sum(checksum), 0) AS checksums"
    )


TALLY = _sums(figures())
"""SQL: the sums of rows, as in `tallies`."""


def _tally(sign: str, row: str, version: int) -> str:
    added = figures(f"{row}.", version)
    return (
        f"UPDATE tallies SET count = count {sign} 1, passed = passed {sign} {row}.passed, "
        f"errors = errors {sign} {row}.error, figures = figures {sign} ({added}), "
        f"checksums = checksums {sign} coalesce({row}.checksum, 0) WHERE run = {row}.run;"
    )


def _triggers(version: int) -> tuple[str, ...]:
    """Return the triggers that keep the tallies up to date, as a version of the file has them."""
    less, more = _tally("-", "OLD", version), _tally("+", "NEW", version)
    return (
        f"CREATE TRIGGER row_added AFTER INSERT ON rows BEGIN {more} END",
        f"CREATE TRIGGER row_deleted AFTER DELETE ON rows BEGIN {less} END",
        f"CREATE TRIGGER row_changed AFTER UPDATE ON rows BEGIN {less} {more} END",
    )


def _tallied(
    table: str, columns: str, scope: str = "run_id", criterion: str = "{}criterion"
) -> tuple[str, ...]:
    """Return the statements that give a table of records its checksums and tallies.

    `criterion` is SQL, with the row ("OLD.", "NEW." or none) in place of the braces.
    """
    old, new = (criterion.format(row) for row in ("OLD.", "NEW."))
    of_old = f"WHERE kind = '{table}' AND scope = OLD.{scope} AND criterion = {old}"
    return (
        f"ALTER TABLE {table} ADD COLUMN checksum INTEGER",
        f"UPDATE {table} SET checksum = run_checksum(id, {columns}, substr(body, 1, 5))",
        f"INSERT INTO record_tallies SELECT '{table}', {scope}, {criterion.format('')}, "
        f"count(*), sum(checksum) FROM {table} GROUP BY 2, 3",
        f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN INSERT INTO record_tallies "
        f"VALUES ('{table}', NEW.{scope}, {new}, 1, coalesce(NEW.checksum, 0)) "
        "ON CONFLICT (kind, scope, criterion) DO UPDATE SET count = count + 1, "
        "checksums = checksums + excluded.checksums; END",
        f"CREATE TRIGGER {table}_deleted AFTER DELETE ON {table} BEGIN "
        "UPDATE record_tallies SET count = count - 1, "
        f"checksums = checksums - coalesce(OLD.checksum, 0) {of_old}; "
        f"DELETE FROM record_tallies {of_old} AND count = 0; END",
    )


# Each takes the file from one version to the next; `user_version` counts those that were made.
# One that was released never changes. To change the file, add one at the end.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL UNIQUE,
            created INTEGER NOT NULL,   -- microseconds since 1970
            finished INTEGER,
            status TEXT NOT NULL,
            note BLOB NOT NULL,
            manifest BLOB NOT NULL
        )""",
        create_table(),
        "CREATE UNIQUE INDEX one_row_per_key ON rows (run, experiment, sample, epoch)",
        "CREATE TABLE bodies (id INTEGER PRIMARY KEY, result BLOB NOT NULL, session BLOB)",
        """CREATE TRIGGER replaced AFTER UPDATE OF body ON rows
            BEGIN DELETE FROM bodies WHERE id = OLD.body; END""",
        """CREATE TRIGGER deleted AFTER DELETE ON rows
            BEGIN DELETE FROM bodies WHERE id = OLD.body; END""",
    ),
    ("CREATE TABLE sessions (session_id BLOB PRIMARY KEY, body BLOB NOT NULL)",),
    ("CREATE TABLE kept (key BLOB PRIMARY KEY, body BLOB NOT NULL)",),
    (
        *add_columns(4),
        "ALTER TABLE runs ADD COLUMN checksum INTEGER",
        # The process that runs it, as JSON, and its last heartbeat, in microseconds since 1970.
        "ALTER TABLE runs ADD COLUMN owner BLOB",
        "ALTER TABLE runs ADD COLUMN heartbeat INTEGER",
        # What the rows of a run add up to; if they do not, rows are missing or damaged.
        """CREATE TABLE tallies (
            run INTEGER PRIMARY KEY,
            count INTEGER NOT NULL,
            passed INTEGER NOT NULL,
            errors INTEGER NOT NULL,
            figures INTEGER NOT NULL,
            checksums INTEGER NOT NULL
        )""",
        f"INSERT INTO tallies SELECT run, {_sums(figures(version=4))} FROM rows GROUP BY run",
        "INSERT OR IGNORE INTO tallies SELECT id, 0, 0, 0, 0, 0 FROM runs",
        """CREATE TRIGGER run_added AFTER INSERT ON runs
            BEGIN INSERT INTO tallies VALUES (NEW.id, 0, 0, 0, 0, 0); END""",
        """CREATE TRIGGER run_deleted AFTER DELETE ON runs
            BEGIN DELETE FROM tallies WHERE run = OLD.id; END""",
        *_triggers(4),
    ),
    (
        # Why a run stopped before its last sample: see `RunRecord`. Before, only the note said so.
        "ALTER TABLE runs ADD COLUMN stop_reason TEXT NOT NULL DEFAULT ''",
        """UPDATE runs SET stop_reason = CASE
            WHEN CAST(note AS TEXT) LIKE 'stopped early: %' THEN 'rule'
            WHEN CAST(note AS TEXT) LIKE 'stopped by the budget%' THEN 'budget'
            WHEN CAST(note AS TEXT) LIKE 'stopped by the error%' THEN 'error'
            ELSE '' END""",
        f"UPDATE runs SET checksum = {_SECOND_RUN_CHECKSUM} WHERE checksum = {_FIRST_RUN_CHECKSUM}",
    ),
    (
        # Microseconds during which a process ran the run; None in runs without an owner.
        "ALTER TABLE runs ADD COLUMN active INTEGER",
        *add_columns(6),
        f"UPDATE runs SET checksum = {RUN_CHECKSUM} WHERE checksum = {_SECOND_RUN_CHECKSUM}",
    ),
    (
        *add_columns(7),
        *(f"DROP TRIGGER {name}" for name in ("row_added", "row_deleted", "row_changed")),
        *_triggers(7),
    ),
    (
        # What people say about outputs, and what that says about judges (`human_labels.py`,
        # `calibrations.py`). Rows are only ever added, and stay when their run is removed.
        # `body` is JSON with everything; the other columns are for finding it.
        """CREATE TABLE label_draws (
            id INTEGER PRIMARY KEY,
            key BLOB NOT NULL,          -- of the row in a file of labels
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
        "CREATE INDEX draws_by_run ON label_draws (run_id, criterion)",
        "CREATE INDEX draws_by_key ON label_draws (key)",
        """CREATE TABLE human_labels (
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            content BLOB NOT NULL,      -- hash of input, expected and output
            body BLOB NOT NULL
        )""",
        "CREATE INDEX labels_by_run ON human_labels (run_id, criterion)",
        """CREATE TABLE calibrations (
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
        "CREATE INDEX calibrations_by_criterion ON calibrations (criterion)",
        """CREATE TABLE judge_tests (     -- each look at the test half of the labels
            id INTEGER PRIMARY KEY,
            run_id BLOB NOT NULL,
            criterion BLOB NOT NULL,
            body BLOB NOT NULL
        )""",
    ),
    (
        # Each row is one change of a category: created, renamed or merged (`categories.py`).
        """CREATE TABLE failure_categories (
            id INTEGER PRIMARY KEY,
            suite BLOB NOT NULL,        -- the suite or dataset that the category is for
            body BLOB NOT NULL
        )""",
        "CREATE INDEX categories_by_suite ON failure_categories (suite)",
        "CREATE INDEX labels_by_criterion ON human_labels (criterion)",
    ),
    (
        # Samples that were in flight when their process died (`deaths.py`).
        """CREATE TABLE deaths (
            run INTEGER NOT NULL,
            sample BLOB NOT NULL,
            epoch INTEGER NOT NULL,
            count INTEGER NOT NULL,
            alone INTEGER NOT NULL,     -- those while nothing else ran
            how BLOB NOT NULL,          -- how the last process ended, if that is known
            PRIMARY KEY (run, sample, epoch)
        ) WITHOUT ROWID""",
        """CREATE TRIGGER run_removed AFTER DELETE ON runs
            BEGIN DELETE FROM deaths WHERE run = OLD.id; END""",
    ),
    (
        # What the records of people add up to, by table, run (or suite) and criterion. If they do
        # not, some are missing or damaged. A run's labels, draws and looks go with it.
        """CREATE TABLE record_tallies (
            kind TEXT NOT NULL,
            scope BLOB NOT NULL,
            criterion BLOB NOT NULL,
            count INTEGER NOT NULL,
            checksums INTEGER NOT NULL,
            PRIMARY KEY (kind, scope, criterion)
        ) WITHOUT ROWID""",
        "DROP INDEX draws_by_key",  # draws are looked up among those of their run
        *_tallied("label_draws", "key, run_id, criterion"),
        *_tallied("human_labels", "run_id, criterion, content"),
        *_tallied("calibrations", "run_id, criterion"),
        *_tallied("judge_tests", "run_id, criterion"),
        *_tallied("failure_categories", "suite", "suite", "x''"),
    ),
    (
        # The figures of runs that have ended, to list many of them quickly (`kept_figures.py`).
        """CREATE TABLE figures (
            run INTEGER PRIMARY KEY,
            state BLOB NOT NULL,        -- of the rows, and of what else the figures depend on
            body BLOB NOT NULL
        )""",
        """CREATE TRIGGER run_without_figures AFTER DELETE ON runs
            BEGIN DELETE FROM figures WHERE run = OLD.id; END""",
    ),
)
