-- The record of one org. Each table's key begins with the org, as in the store that holds many.
-- Times are microseconds since 1970, UTC. `doc` holds the aggregate as JSON; the columns beside it are
-- what questions search by. A row that waits has `due_at`; `wake_at` is when it is both due and free to
-- be claimed, so that a sweep reads nothing but what it takes. Writing several parents at once makes SQLite
-- look for their children, so every foreign key has an index over its child columns; what the writer
-- itself derives from a row (hop, envelope_lease, edge) needs none.

CREATE TABLE store (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    org_id   TEXT NOT NULL
) STRICT;

CREATE TABLE task (
    org_id           TEXT NOT NULL,
    id               TEXT NOT NULL,
    version          INTEGER NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('running', 'awaiting_approval', 'awaiting_input',
                         'completed', 'failed', 'denied', 'rejected', 'timed_out', 'canceled')),
    workflow_name    TEXT,
    workflow_version INTEGER,
    created_at       INTEGER NOT NULL,
    due_at           INTEGER,
    claimed_until    INTEGER NOT NULL DEFAULT 0,
    fence            INTEGER NOT NULL DEFAULT 0,
    wake_at          INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL,
    doc              TEXT NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT;
CREATE INDEX task_due ON task (org_id, wake_at) WHERE due_at IS NOT NULL;
CREATE INDEX task_claimed ON task (org_id) WHERE claimed_until > 0;
CREATE INDEX task_status ON task (org_id, status, id);
CREATE INDEX task_workflow ON task (org_id, workflow_name, id) WHERE workflow_name IS NOT NULL;

-- Every hop that a task made, to roles and agents alike: written once, never changed.
CREATE TABLE hop (
    org_id      TEXT NOT NULL,
    id          TEXT NOT NULL,
    task_id     TEXT NOT NULL,
    to_endpoint TEXT NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX hop_endpoint ON hop (org_id, to_endpoint, task_id);
CREATE INDEX hop_task ON hop (org_id, task_id);

CREATE TABLE foreign_agent_registry (
    org_id        TEXT NOT NULL,
    key           TEXT NOT NULL,
    agent_version INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('pending_review', 'active', 'disabled', 'revoked')),
    doc           TEXT NOT NULL,
    PRIMARY KEY (org_id, key, agent_version)
) STRICT;

CREATE TABLE a2a_bridge (
    org_id             TEXT NOT NULL,
    id                 TEXT NOT NULL,
    version            INTEGER NOT NULL,
    internal_task_id   TEXT NOT NULL,
    step_name          TEXT NOT NULL,
    foreign_agent_key  TEXT NOT NULL,
    registry_version   INTEGER NOT NULL,
    foreign_task_id    TEXT,
    continuation_token TEXT,
    status             TEXT NOT NULL CHECK (status IN ('awaiting_approval', 'ready', 'sending',
                           'send_unknown', 'working', 'input_required', 'auth_required', 'completed',
                           'failed', 'rejected', 'canceled_by_peer', 'canceled_by_us', 'timed_out', 'denied')),
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    due_at             INTEGER,
    claimed_until      INTEGER NOT NULL DEFAULT 0,
    fence              INTEGER NOT NULL DEFAULT 0,
    wake_at            INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL,
    doc                TEXT NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, internal_task_id) REFERENCES task (org_id, id),
    FOREIGN KEY (org_id, foreign_agent_key, registry_version)
        REFERENCES foreign_agent_registry (org_id, key, agent_version)
) STRICT;
CREATE INDEX a2a_bridge_due ON a2a_bridge (org_id, wake_at) WHERE due_at IS NOT NULL;
CREATE INDEX a2a_bridge_claimed ON a2a_bridge (org_id) WHERE claimed_until > 0;
CREATE INDEX a2a_bridge_task ON a2a_bridge (org_id, internal_task_id);
CREATE INDEX a2a_bridge_agent ON a2a_bridge (org_id, foreign_agent_key, registry_version);
CREATE INDEX a2a_bridge_foreign ON a2a_bridge (org_id, foreign_agent_key, foreign_task_id)
    WHERE foreign_task_id IS NOT NULL;

CREATE TABLE envelope (
    org_id        TEXT NOT NULL,
    id            TEXT NOT NULL,
    version       INTEGER NOT NULL,
    task_id       TEXT NOT NULL,
    to_endpoint   TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('ready', 'leased', 'settled', 'void')),
    created_at    INTEGER NOT NULL,
    due_at        INTEGER,
    claimed_until INTEGER NOT NULL DEFAULT 0,
    fence         INTEGER NOT NULL DEFAULT 0,
    wake_at       INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL,
    doc           TEXT NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, task_id) REFERENCES task (org_id, id)
) STRICT;
CREATE INDEX envelope_due ON envelope (org_id, wake_at) WHERE due_at IS NOT NULL;
CREATE INDEX envelope_claimed ON envelope (org_id) WHERE claimed_until > 0;
CREATE INDEX envelope_ready ON envelope (org_id, to_endpoint, created_at, id) WHERE state = 'ready';
CREATE INDEX envelope_task ON envelope (org_id, task_id);

-- Every lease that an envelope ever had: a lost one still finds it.
CREATE TABLE envelope_lease (
    org_id      TEXT NOT NULL,
    lease_id    TEXT NOT NULL,
    envelope_id TEXT NOT NULL,
    PRIMARY KEY (org_id, lease_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE approval (
    org_id        TEXT NOT NULL,
    id            TEXT NOT NULL,
    version       INTEGER NOT NULL,
    task_id       TEXT NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'superseded',
                      'canceled')),
    created_at    INTEGER NOT NULL,
    due_at        INTEGER,
    claimed_until INTEGER NOT NULL DEFAULT 0,
    fence         INTEGER NOT NULL DEFAULT 0,
    wake_at       INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL,
    doc           TEXT NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, task_id) REFERENCES task (org_id, id)
) STRICT;
CREATE INDEX approval_due ON approval (org_id, wake_at) WHERE due_at IS NOT NULL;
CREATE INDEX approval_claimed ON approval (org_id) WHERE claimed_until > 0;
CREATE INDEX approval_status ON approval (org_id, status, id);
CREATE INDEX approval_task ON approval (org_id, task_id);

-- The bytes of each payload and the salt of its digest, apart from the ledger, so that they can be erased.
CREATE TABLE payload (
    org_id  TEXT NOT NULL,
    id      TEXT NOT NULL,
    version INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    salt    BLOB NOT NULL CHECK (length(salt) = 32),
    bytes   BLOB NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, task_id) REFERENCES task (org_id, id)
) STRICT;
CREATE INDEX payload_task ON payload (org_id, task_id);

CREATE TABLE callback_route (
    org_id      TEXT NOT NULL,
    callback_id TEXT NOT NULL,
    version     INTEGER NOT NULL,
    hop_id      TEXT NOT NULL,
    until       INTEGER NOT NULL,
    doc         TEXT NOT NULL,
    PRIMARY KEY (org_id, callback_id),
    FOREIGN KEY (org_id, hop_id) REFERENCES a2a_bridge (org_id, id)
) STRICT;
CREATE INDEX callback_route_hop ON callback_route (org_id, hop_id);

CREATE TABLE inbox (
    org_id        TEXT NOT NULL,
    id            TEXT NOT NULL,
    version       INTEGER NOT NULL,
    hop_id        TEXT NOT NULL,
    digest        TEXT NOT NULL,
    at            INTEGER NOT NULL,
    due_at        INTEGER,
    claimed_until INTEGER NOT NULL DEFAULT 0,
    fence         INTEGER NOT NULL DEFAULT 0,
    wake_at       INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL,
    doc           TEXT NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, hop_id) REFERENCES a2a_bridge (org_id, id)
) STRICT;
CREATE UNIQUE INDEX inbox_once ON inbox (org_id, hop_id, digest);
CREATE INDEX inbox_due ON inbox (org_id, wake_at) WHERE due_at IS NOT NULL;
CREATE INDEX inbox_open ON inbox (org_id, hop_id) WHERE due_at IS NOT NULL;
CREATE INDEX inbox_claimed ON inbox (org_id) WHERE claimed_until > 0;

CREATE TABLE cancel_intent (
    org_id        TEXT NOT NULL,
    hop_id        TEXT NOT NULL,
    foreign_task  TEXT NOT NULL,
    version       INTEGER NOT NULL,
    task_id       TEXT NOT NULL,
    due_at        INTEGER,
    claimed_until INTEGER NOT NULL DEFAULT 0,
    fence         INTEGER NOT NULL DEFAULT 0,
    wake_at       INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL,
    doc           TEXT NOT NULL,
    PRIMARY KEY (org_id, hop_id, foreign_task),
    FOREIGN KEY (org_id, hop_id) REFERENCES a2a_bridge (org_id, id),
    FOREIGN KEY (org_id, task_id) REFERENCES task (org_id, id)
) STRICT;
CREATE INDEX cancel_intent_due ON cancel_intent (org_id, wake_at) WHERE due_at IS NOT NULL;
CREATE INDEX cancel_intent_claimed ON cancel_intent (org_id) WHERE claimed_until > 0;
CREATE INDEX cancel_intent_task ON cancel_intent (org_id, task_id);

CREATE TABLE dead_letter (
    org_id  TEXT NOT NULL,
    id      TEXT NOT NULL,
    version INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    doc     TEXT NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, task_id) REFERENCES task (org_id, id)
) STRICT;
CREATE INDEX dead_letter_task ON dead_letter (org_id, task_id);

-- What governs. The registry's own row is its version and nothing else.
CREATE TABLE registry (
    org_id  TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE role (
    org_id  TEXT NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    doc     TEXT NOT NULL,
    PRIMARY KEY (org_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE egress_mode (
    org_id  TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    mode    TEXT NOT NULL CHECK (mode IN ('off', 'halt', 'drain', 'on'))
) STRICT, WITHOUT ROWID;

CREATE TABLE policy (
    org_id         TEXT NOT NULL,
    policy_version INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    doc            TEXT NOT NULL,
    PRIMARY KEY (org_id, policy_version)
) STRICT;

CREATE TABLE budget (
    org_id  TEXT NOT NULL,
    scope   TEXT NOT NULL,
    version INTEGER NOT NULL,
    doc     TEXT NOT NULL,
    PRIMARY KEY (org_id, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow (
    org_id           TEXT NOT NULL,
    name             TEXT NOT NULL,
    workflow_version INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    doc              TEXT NOT NULL,
    PRIMARY KEY (org_id, name, workflow_version)
) STRICT;

CREATE TABLE contact (
    org_id    TEXT NOT NULL,
    agent_key TEXT NOT NULL,
    version   INTEGER NOT NULL,
    PRIMARY KEY (org_id, agent_key)
) STRICT, WITHOUT ROWID;

-- Doors.
CREATE TABLE api_key (
    org_id     TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    org_id  TEXT NOT NULL,
    key_id  TEXT NOT NULL,
    route   TEXT NOT NULL,
    key     TEXT NOT NULL,
    version INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    doc     TEXT NOT NULL,
    PRIMARY KEY (org_id, key_id, route, key)
) STRICT;

CREATE TABLE note (
    org_id  TEXT NOT NULL,
    digest  TEXT NOT NULL,
    version INTEGER NOT NULL,
    salt    BLOB NOT NULL CHECK (length(salt) = 32),
    text    TEXT NOT NULL,
    PRIMARY KEY (org_id, digest)
) STRICT;

CREATE TABLE setting (
    org_id  TEXT NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (org_id, name)
) STRICT, WITHOUT ROWID;

-- The chain. `last_at` is the latest time that was committed; the store's time never runs below it.
CREATE TABLE ledger_head (
    org_id  TEXT NOT NULL PRIMARY KEY,
    size    INTEGER NOT NULL,
    hash    BLOB NOT NULL CHECK (length(hash) = 32),
    last_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger (
    org_id    TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    hash      BLOB NOT NULL CHECK (length(hash) = 32),
    kind      TEXT NOT NULL,
    task_id   TEXT,
    change_id TEXT NOT NULL,
    bytes     BLOB NOT NULL,
    PRIMARY KEY (org_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_task ON ledger (org_id, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX ledger_change ON ledger (org_id, change_id);
CREATE TRIGGER ledger_stands BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;

-- Change sets that wrote no record: how one whose answer was lost is found again. Forgotten after a day.
CREATE TABLE silent_change (
    org_id    TEXT NOT NULL,
    change_id TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (org_id, change_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX silent_change_at ON silent_change (org_id, at);

CREATE TABLE edge (
    org_id  TEXT NOT NULL,
    task_id TEXT NOT NULL,
    step    TEXT NOT NULL,
    hop_id  TEXT NOT NULL,
    turn    INTEGER NOT NULL,
    dir     TEXT NOT NULL CHECK (dir IN ('forward', 'a2a_egress', 'a2a_ingress')),
    seq     INTEGER NOT NULL,
    PRIMARY KEY (org_id, task_id, step, hop_id, turn, dir)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint (
    org_id TEXT NOT NULL,
    size   INTEGER NOT NULL,
    note   TEXT NOT NULL,
    PRIMARY KEY (org_id, size)
) STRICT, WITHOUT ROWID;

-- Money.
CREATE TABLE account (
    org_id            TEXT NOT NULL,
    scope             TEXT NOT NULL,
    since             INTEGER NOT NULL,
    reserved_microusd INTEGER NOT NULL CHECK (reserved_microusd >= 0),
    settled_microusd  INTEGER NOT NULL CHECK (settled_microusd >= 0),
    PRIMARY KEY (org_id, scope, since)
) STRICT, WITHOUT ROWID;

CREATE TABLE cost_entry (
    id              INTEGER PRIMARY KEY,
    org_id          TEXT NOT NULL,
    at              INTEGER NOT NULL,
    change_id       TEXT NOT NULL,
    hop_id          TEXT NOT NULL,
    turn            INTEGER NOT NULL,
    entry           TEXT NOT NULL,
    amount_microusd INTEGER NOT NULL,
    reserved_delta  INTEGER NOT NULL,
    settled_delta   INTEGER NOT NULL
) STRICT;
CREATE INDEX cost_entry_at ON cost_entry (org_id, at);

CREATE TABLE task_event (
    org_id  TEXT NOT NULL,
    task_id TEXT NOT NULL,
    id      INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    event   TEXT NOT NULL,
    data    TEXT NOT NULL,
    PRIMARY KEY (org_id, task_id, id)
) STRICT, WITHOUT ROWID;
