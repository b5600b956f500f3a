-- One row for each budget; its revision is that of its resource. Windows follow each other without a gap, so that where one
-- begins is arithmetic. The row says which one was spent from last.
CREATE TABLE budgets (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    name TEXT NOT NULL UNIQUE CHECK (0 < length(name)),
    limit_units INTEGER NOT NULL CHECK (0 < limit_units),
    window_ms INTEGER NOT NULL CHECK (0 < window_ms),
    window_started_at INTEGER NOT NULL,
    spent_units INTEGER NOT NULL CHECK (0 <= spent_units)
) STRICT;

-- Every call that asked, with the answer that it got, also a refusal: a repeat gets the same one.
CREATE TABLE budget_calls (
    call_id TEXT PRIMARY KEY CHECK (0 < length(call_id)),
    budget_key INTEGER NOT NULL REFERENCES budgets (resource_key),
    units INTEGER NOT NULL CHECK (0 < units),
    granted INTEGER NOT NULL CHECK (granted = 0 OR granted = 1),
    window_started_at INTEGER NOT NULL,
    decided_at INTEGER NOT NULL
) STRICT;

-- verify::budgetSpent adds up the calls of one window.
CREATE INDEX budget_calls_by_window ON budget_calls (budget_key, window_started_at);

-- Attempts of workflow runs that wait for units: each row is written in the transaction that parks its attempt. `gone` is a wait whose
-- run ended before it was served.
CREATE TABLE budget_waits (
    wait_key INTEGER PRIMARY KEY,
    budget_key INTEGER NOT NULL REFERENCES budgets (resource_key),
    request_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    units INTEGER NOT NULL CHECK (0 < units),
    state TEXT NOT NULL CHECK (state = 'waiting' OR state = 'granted' OR state = 'gone'),
    asked_at INTEGER NOT NULL
) STRICT;

-- store::line serves the oldest first.
CREATE INDEX budget_waits_in_line ON budget_waits (budget_key, wait_key) WHERE state = 'waiting';
