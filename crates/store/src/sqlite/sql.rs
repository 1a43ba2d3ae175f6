//! Every line of SQL of the embedded store, as named constants. A test prepares each of them.
//!
//! Rows are written a table at a time: `?2` is a JSON array with one array per row, whose first two
//! members say where in the blob `?3` the row's text or bytes lie, and whose third is its version. So a
//! batch costs one statement per table that it touches, however many rows it writes. `?1` is the org,
//! everywhere.

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

// -- opening -------------------------------------------------------------------------------------

pub(super) const SCHEMA_VERSION: &str = "PRAGMA user_version";
pub(super) const APPLICATION: &str = "PRAGMA application_id";
pub(super) const ANY_TABLE: &str = "SELECT count(*) FROM sqlite_master";
pub(super) const ORG: &str = "SELECT org_id FROM store WHERE one = 1";
pub(super) const SET_ORG: &str =
    "INSERT INTO store (one, org_id) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING";
pub(super) const LAST_AT: &str = "SELECT last_at FROM ledger_head WHERE org_id = ?1";
pub(super) const RAISE_INCARNATION: &str = "
    INSERT INTO setting (org_id, name, version, value) VALUES (?1, 'incarnation', 1, '1')
    ON CONFLICT (org_id, name) DO UPDATE SET version = version + 1, value = CAST(value AS INTEGER) + 1
    RETURNING CAST(value AS INTEGER)";
pub(super) const VOID_CLAIMS: [&str; 6] = [
    "UPDATE task INDEXED BY task_claimed SET claimed_until = 0 WHERE org_id = ?1 AND claimed_until > 0",
    "UPDATE a2a_bridge INDEXED BY a2a_bridge_claimed SET claimed_until = 0 WHERE org_id = ?1 AND claimed_until > 0",
    "UPDATE envelope INDEXED BY envelope_claimed SET claimed_until = 0 WHERE org_id = ?1 AND claimed_until > 0",
    "UPDATE approval INDEXED BY approval_claimed SET claimed_until = 0 WHERE org_id = ?1 AND claimed_until > 0",
    "UPDATE inbox INDEXED BY inbox_claimed SET claimed_until = 0 WHERE org_id = ?1 AND claimed_until > 0",
    "UPDATE cancel_intent INDEXED BY cancel_intent_claimed SET claimed_until = 0 WHERE org_id = ?1 AND claimed_until > 0",
];
pub(super) const FORGET_SILENT: &str = "DELETE FROM silent_change WHERE org_id = ?1 AND at < ?2";

// -- what a batch is settled against -------------------------------------------------------------

/// `?2` to `?22`: the keys of each table in the order of `Table::ALL`; then accounts, edges, tasks with
/// events, pushed events, foreign tasks. Columns: which of these, index in its array, and up to two numbers and a blob.
pub(super) const GROUND: &str = "
    SELECT 0 AS part, j.key AS i, t.version AS n, NULL AS m, NULL AS b FROM json_each(?2) AS j
        CROSS JOIN task AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 1, j.key, t.version, NULL, NULL FROM json_each(?3) AS j
        CROSS JOIN foreign_agent_registry AS t ON t.org_id = ?1 AND t.key = j.value ->> 0 AND t.agent_version = j.value ->> 1
    UNION ALL SELECT 2, j.key, t.version, NULL, NULL FROM json_each(?4) AS j
        CROSS JOIN a2a_bridge AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 3, j.key, t.version, NULL, NULL FROM json_each(?5) AS j
        CROSS JOIN envelope AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 4, j.key, t.version, NULL, NULL FROM json_each(?6) AS j
        CROSS JOIN approval AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 5, j.key, t.version, NULL, NULL FROM json_each(?7) AS j
        CROSS JOIN payload AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 6, j.key, t.version, NULL, NULL FROM json_each(?8) AS j
        CROSS JOIN callback_route AS t ON t.org_id = ?1 AND t.callback_id = j.value ->> 0
    UNION ALL SELECT 7, j.key, t.version, NULL, NULL FROM json_each(?9) AS j
        CROSS JOIN inbox AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 8, j.key, t.version, NULL, NULL FROM json_each(?10) AS j
        CROSS JOIN cancel_intent AS t ON t.org_id = ?1 AND t.hop_id = j.value ->> 0 AND t.foreign_task = j.value ->> 1
    UNION ALL SELECT 9, j.key, t.version, NULL, NULL FROM json_each(?11) AS j
        CROSS JOIN dead_letter AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 10, j.key, t.version, NULL, NULL FROM json_each(?12) AS j
        CROSS JOIN registry AS t ON t.org_id = ?1
    UNION ALL SELECT 11, j.key, t.version, NULL, NULL FROM json_each(?13) AS j
        CROSS JOIN role AS t ON t.org_id = ?1 AND t.name = j.value ->> 0
    UNION ALL SELECT 12, j.key, t.version, NULL, NULL FROM json_each(?14) AS j
        CROSS JOIN egress_mode AS t ON t.org_id = ?1
    UNION ALL SELECT 13, j.key, t.version, NULL, NULL FROM json_each(?15) AS j
        CROSS JOIN policy AS t ON t.org_id = ?1 AND t.policy_version = j.value ->> 0
    UNION ALL SELECT 14, j.key, t.version, NULL, NULL FROM json_each(?16) AS j
        CROSS JOIN budget AS t ON t.org_id = ?1 AND t.scope = j.value ->> 0
    UNION ALL SELECT 15, j.key, t.version, NULL, NULL FROM json_each(?17) AS j
        CROSS JOIN workflow AS t ON t.org_id = ?1 AND t.name = j.value ->> 0 AND t.workflow_version = j.value ->> 1
    UNION ALL SELECT 16, j.key, t.version, NULL, NULL FROM json_each(?18) AS j
        CROSS JOIN contact AS t ON t.org_id = ?1 AND t.agent_key = j.value ->> 0
    UNION ALL SELECT 17, j.key, t.version, NULL, NULL FROM json_each(?19) AS j
        CROSS JOIN api_key AS t ON t.org_id = ?1 AND t.id = j.value ->> 0
    UNION ALL SELECT 18, j.key, t.version, NULL, NULL FROM json_each(?20) AS j
        CROSS JOIN idempotency AS t ON t.org_id = ?1 AND t.key_id = j.value ->> 0 AND t.route = j.value ->> 1
            AND t.key = j.value ->> 2
    UNION ALL SELECT 19, j.key, t.version, NULL, NULL FROM json_each(?21) AS j
        CROSS JOIN note AS t ON t.org_id = ?1 AND t.digest = j.value ->> 0
    UNION ALL SELECT 20, j.key, t.version, NULL, NULL FROM json_each(?22) AS j
        CROSS JOIN setting AS t ON t.org_id = ?1 AND t.name = j.value ->> 0
    UNION ALL SELECT 21, j.key, t.reserved_microusd, t.settled_microusd, NULL FROM json_each(?23) AS j
        CROSS JOIN account AS t ON t.org_id = ?1 AND t.scope = j.value ->> 0 AND t.since = j.value ->> 1
    UNION ALL SELECT 22, j.key, t.seq, NULL, NULL FROM json_each(?24) AS j
        CROSS JOIN edge AS t ON t.org_id = ?1 AND t.task_id = j.value ->> 0 AND t.step = j.value ->> 1
            AND t.hop_id = j.value ->> 2 AND t.turn = j.value ->> 3 AND t.dir = j.value ->> 4
    UNION ALL SELECT 23, j.key,
        (SELECT max(id) FROM task_event AS t WHERE t.org_id = ?1 AND t.task_id = j.value ->> 0), NULL, NULL
        FROM json_each(?25) AS j
    UNION ALL SELECT 24, j.key, 1, NULL, NULL FROM json_each(?26) AS j
        CROSS JOIN inbox AS t ON t.org_id = ?1 AND t.hop_id = j.value ->> 0 AND t.digest = j.value ->> 1
    UNION ALL SELECT 25, j.key, 1, NULL, t.id FROM json_each(?27) AS j
        CROSS JOIN a2a_bridge AS t ON t.org_id = ?1 AND t.foreign_agent_key = j.value ->> 0
            AND t.foreign_task_id = j.value ->> 1
    UNION ALL SELECT 26, 0, size, last_at, hash FROM ledger_head WHERE org_id = ?1";

// -- writing -------------------------------------------------------------------------------------

pub(super) const PUT_TASK: &str = "
    INSERT INTO task (org_id, version, id, status, workflow_name, workflow_version, created_at, due_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, status = excluded.status,
        workflow_name = excluded.workflow_name, workflow_version = excluded.workflow_version,
        due_at = excluded.due_at, claimed_until = 0, doc = excluded.doc";
pub(super) const PUT_HOPS: &str = "
    INSERT INTO hop (org_id, id, task_id, to_endpoint)
    SELECT ?1, value ->> 0, value ->> 1, value ->> 2 FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO NOTHING";
pub(super) const PUT_AGENT: &str = "
    INSERT INTO foreign_agent_registry (org_id, version, key, agent_version, status, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, key, agent_version) DO UPDATE SET version = excluded.version,
        status = excluded.status, doc = excluded.doc";
pub(super) const PUT_BRIDGE: &str = "
    INSERT INTO a2a_bridge (org_id, version, id, internal_task_id, step_name, foreign_agent_key,
        registry_version, foreign_task_id, continuation_token, status, created_at, updated_at, due_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
           value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version,
        registry_version = excluded.registry_version, foreign_task_id = excluded.foreign_task_id,
        continuation_token = excluded.continuation_token, status = excluded.status,
        updated_at = excluded.updated_at, due_at = excluded.due_at, claimed_until = 0, doc = excluded.doc";
pub(super) const PUT_ENVELOPE: &str = "
    INSERT INTO envelope (org_id, version, id, task_id, to_endpoint, state, created_at, due_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, to_endpoint = excluded.to_endpoint,
        state = excluded.state, due_at = excluded.due_at, claimed_until = 0, doc = excluded.doc";
pub(super) const PUT_LEASES: &str = "
    INSERT INTO envelope_lease (org_id, lease_id, envelope_id)
    SELECT ?1, value ->> 0, value ->> 1 FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, lease_id) DO NOTHING";
pub(super) const PUT_APPROVAL: &str = "
    INSERT INTO approval (org_id, version, id, task_id, status, created_at, due_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, status = excluded.status,
        due_at = excluded.due_at, claimed_until = 0, doc = excluded.doc";
pub(super) const PUT_PAYLOAD: &str = "
    INSERT INTO payload (org_id, version, id, task_id, salt, bytes)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, unhex(value ->> 5), substr(?3, value ->> 0, value ->> 1)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, salt = excluded.salt,
        bytes = excluded.bytes";
pub(super) const PUT_ROUTE: &str = "
    INSERT INTO callback_route (org_id, version, callback_id, hop_id, until, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, callback_id) DO UPDATE SET version = excluded.version, until = excluded.until,
        doc = excluded.doc";
pub(super) const PUT_INBOX: &str = "
    INSERT INTO inbox (org_id, version, id, hop_id, digest, at, due_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, due_at = excluded.due_at,
        claimed_until = 0, doc = excluded.doc";
pub(super) const PUT_CANCEL: &str = "
    INSERT INTO cancel_intent (org_id, version, hop_id, foreign_task, task_id, due_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, hop_id, foreign_task) DO UPDATE SET version = excluded.version,
        due_at = excluded.due_at, claimed_until = 0, doc = excluded.doc";
pub(super) const PUT_DEAD_LETTER: &str = "
    INSERT INTO dead_letter (org_id, version, id, task_id, kind, at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, doc = excluded.doc";
pub(super) const PUT_REGISTRY: &str = "
    INSERT INTO registry (org_id, version) SELECT ?1, value ->> 2 FROM json_each(?2) WHERE ?3 IS NOT NULL
    ON CONFLICT (org_id) DO UPDATE SET version = excluded.version";
pub(super) const PUT_ROLE: &str = "
    INSERT INTO role (org_id, version, name, doc)
    SELECT ?1, value ->> 2, value ->> 3, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, name) DO UPDATE SET version = excluded.version, doc = excluded.doc";
pub(super) const PUT_MODE: &str = "
    INSERT INTO egress_mode (org_id, version, mode)
    SELECT ?1, value ->> 2, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT) FROM json_each(?2) WHERE true
    ON CONFLICT (org_id) DO UPDATE SET version = excluded.version, mode = excluded.mode";
pub(super) const PUT_POLICY: &str = "
    INSERT INTO policy (org_id, version, policy_version, doc)
    SELECT ?1, value ->> 2, value ->> 3, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, policy_version) DO UPDATE SET version = excluded.version, doc = excluded.doc";
pub(super) const PUT_BUDGET: &str = "
    INSERT INTO budget (org_id, version, scope, doc)
    SELECT ?1, value ->> 2, value ->> 3, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, scope) DO UPDATE SET version = excluded.version, doc = excluded.doc";
pub(super) const PUT_WORKFLOW: &str = "
    INSERT INTO workflow (org_id, version, name, workflow_version, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, name, workflow_version) DO UPDATE SET version = excluded.version, doc = excluded.doc";
pub(super) const PUT_CONTACT: &str = "
    INSERT INTO contact (org_id, version, agent_key)
    SELECT ?1, value ->> 2, value ->> 3 FROM json_each(?2) WHERE ?3 IS NOT NULL
    ON CONFLICT (org_id, agent_key) DO UPDATE SET version = excluded.version";
pub(super) const PUT_API_KEY: &str = "
    INSERT INTO api_key (org_id, version, id, created_at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET version = excluded.version, doc = excluded.doc";
pub(super) const PUT_IDEMPOTENCY: &str = "
    INSERT INTO idempotency (org_id, version, key_id, route, key, at, doc)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, key_id, route, key) DO UPDATE SET version = excluded.version, at = excluded.at,
        doc = excluded.doc";
pub(super) const PUT_NOTE: &str = "
    INSERT INTO note (org_id, version, digest, salt, text)
    SELECT ?1, value ->> 2, value ->> 3, unhex(value ->> 4), CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, digest) DO UPDATE SET version = excluded.version, salt = excluded.salt,
        text = excluded.text";
pub(super) const PUT_SETTING: &str = "
    INSERT INTO setting (org_id, version, name, value)
    SELECT ?1, value ->> 2, value ->> 3, CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, name) DO UPDATE SET version = excluded.version, value = excluded.value";

pub(super) const APPEND: &str = "
    INSERT INTO ledger (org_id, seq, hash, kind, task_id, change_id, bytes)
    SELECT ?1, value ->> 2, unhex(value ->> 3), value ->> 4, value ->> 5, value ->> 6,
           substr(?3, value ->> 0, value ->> 1)
    FROM json_each(?2)";
pub(super) const PUT_EDGES: &str = "
    INSERT INTO edge (org_id, task_id, step, hop_id, turn, dir, seq)
    SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?2)";
pub(super) const PUT_HEAD: &str = "
    INSERT INTO ledger_head (org_id, size, hash, last_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (org_id) DO UPDATE SET size = excluded.size, hash = excluded.hash, last_at = excluded.last_at";
pub(super) const PUT_SILENT: &str = "
    INSERT INTO silent_change (org_id, change_id, at)
    SELECT ?1, value ->> 0, value ->> 1 FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, change_id) DO NOTHING";
pub(super) const PUT_ACCOUNTS: &str = "
    INSERT INTO account (org_id, scope, since, reserved_microusd, settled_microusd)
    SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?2) WHERE true
    ON CONFLICT (org_id, scope, since) DO UPDATE SET reserved_microusd = excluded.reserved_microusd,
        settled_microusd = excluded.settled_microusd";
pub(super) const PUT_COSTS: &str = "
    INSERT INTO cost_entry (org_id, at, change_id, hop_id, turn, entry, amount_microusd, reserved_delta,
        settled_delta)
    SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
           value ->> 7
    FROM json_each(?2)";
pub(super) const PUT_EVENTS: &str = "
    INSERT INTO task_event (org_id, task_id, id, at, event, data)
    SELECT ?1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
           CAST(substr(?3, value ->> 0, value ->> 1) AS TEXT)
    FROM json_each(?2)";
pub(super) const PUT_CHECKPOINT: &str = "
    INSERT INTO checkpoint (org_id, size, note) VALUES (?1, ?2, ?3)
    ON CONFLICT (org_id, size) DO UPDATE SET note = excluded.note";

// -- claims: `?2` now, `?3` until when, `?4` how many --------------------------------------------

pub(super) const CLAIM_TASK: &str = "
    UPDATE task SET claimed_until = ?3, fence = fence + 1 WHERE rowid IN (
        SELECT rowid FROM task INDEXED BY task_due WHERE org_id = ?1 AND due_at IS NOT NULL AND wake_at <= ?2
        ORDER BY wake_at LIMIT ?4)
    RETURNING id, '', fence, due_at";
pub(super) const CLAIM_BRIDGE: &str = "
    UPDATE a2a_bridge SET claimed_until = ?3, fence = fence + 1 WHERE rowid IN (
        SELECT rowid FROM a2a_bridge INDEXED BY a2a_bridge_due WHERE org_id = ?1 AND due_at IS NOT NULL AND wake_at <= ?2
        ORDER BY wake_at LIMIT ?4)
    RETURNING id, '', fence, due_at";
pub(super) const CLAIM_ENVELOPE: &str = "
    UPDATE envelope SET claimed_until = ?3, fence = fence + 1 WHERE rowid IN (
        SELECT rowid FROM envelope INDEXED BY envelope_due WHERE org_id = ?1 AND due_at IS NOT NULL AND wake_at <= ?2
        ORDER BY wake_at LIMIT ?4)
    RETURNING id, '', fence, due_at";
pub(super) const CLAIM_APPROVAL: &str = "
    UPDATE approval SET claimed_until = ?3, fence = fence + 1 WHERE rowid IN (
        SELECT rowid FROM approval INDEXED BY approval_due WHERE org_id = ?1 AND due_at IS NOT NULL AND wake_at <= ?2
        ORDER BY wake_at LIMIT ?4)
    RETURNING id, '', fence, due_at";
pub(super) const CLAIM_INBOX: &str = "
    UPDATE inbox SET claimed_until = ?3, fence = fence + 1 WHERE rowid IN (
        SELECT rowid FROM inbox INDEXED BY inbox_due WHERE org_id = ?1 AND due_at IS NOT NULL AND wake_at <= ?2
        ORDER BY wake_at LIMIT ?4)
    RETURNING id, hop_id, fence, due_at";
pub(super) const CLAIM_CANCEL: &str = "
    UPDATE cancel_intent SET claimed_until = ?3, fence = fence + 1 WHERE rowid IN (
        SELECT rowid FROM cancel_intent INDEXED BY cancel_intent_due WHERE org_id = ?1 AND due_at IS NOT NULL AND wake_at <= ?2
        ORDER BY wake_at LIMIT ?4)
    RETURNING hop_id, foreign_task, fence, due_at";
pub(super) const NEXT_DUE: &str = "
    SELECT min(w) FROM (
        SELECT (SELECT wake_at FROM task INDEXED BY task_due WHERE org_id = ?1 AND due_at IS NOT NULL ORDER BY wake_at LIMIT 1) AS w
        UNION ALL SELECT (SELECT wake_at FROM a2a_bridge INDEXED BY a2a_bridge_due WHERE org_id = ?1 AND due_at IS NOT NULL ORDER BY wake_at LIMIT 1)
        UNION ALL SELECT (SELECT wake_at FROM envelope INDEXED BY envelope_due WHERE org_id = ?1 AND due_at IS NOT NULL ORDER BY wake_at LIMIT 1)
        UNION ALL SELECT (SELECT wake_at FROM approval INDEXED BY approval_due WHERE org_id = ?1 AND due_at IS NOT NULL ORDER BY wake_at LIMIT 1)
        UNION ALL SELECT (SELECT wake_at FROM inbox INDEXED BY inbox_due WHERE org_id = ?1 AND due_at IS NOT NULL ORDER BY wake_at LIMIT 1)
        UNION ALL SELECT (SELECT wake_at FROM cancel_intent INDEXED BY cancel_intent_due WHERE org_id = ?1 AND due_at IS NOT NULL ORDER BY wake_at LIMIT 1))";

// -- finding and loading a task ------------------------------------------------------------------

pub(super) const TASK_OF_HOP: &str = "SELECT task_id FROM hop WHERE org_id = ?1 AND id = ?2";
pub(super) const TASK_OF_APPROVAL: &str = "SELECT task_id FROM approval WHERE org_id = ?1 AND id = ?2";
pub(super) const TASK_OF_ENVELOPE: &str = "SELECT task_id FROM envelope WHERE org_id = ?1 AND id = ?2";
pub(super) const ENVELOPE_OF_LEASE: &str = "
    SELECT e.task_id, e.id FROM envelope_lease AS l
    JOIN envelope AS e ON e.org_id = l.org_id AND e.id = l.envelope_id
    WHERE l.org_id = ?1 AND l.lease_id = ?2";

/// `?2` the task, `?3` an envelope and `?4` an approval that are wanted whatever their state. One
/// statement, so that all of it is as of one moment; unordered, lest an order picks the wrong index.
/// Columns: which part, key, version, text, two blobs.
pub(super) const LOAD: &str = "
    SELECT 0 AS part, id, version, doc, NULL AS salt, NULL AS bytes FROM task WHERE org_id = ?1 AND id = ?2
    UNION ALL SELECT 1, w.name, w.version, w.doc, NULL, NULL FROM task AS t
        CROSS JOIN workflow AS w ON w.org_id = ?1 AND w.name = t.workflow_name AND w.workflow_version = t.workflow_version
        WHERE t.org_id = ?1 AND t.id = ?2
    UNION ALL SELECT 2, id, version, doc, NULL, NULL FROM a2a_bridge INDEXED BY a2a_bridge_task
        WHERE org_id = ?1 AND internal_task_id = ?2
    UNION ALL SELECT 3, id, version, doc, NULL, NULL FROM envelope INDEXED BY envelope_task
        WHERE org_id = ?1 AND task_id = ?2 AND (state IN ('ready', 'leased') OR id = ?3)
    UNION ALL SELECT 4, id, version, doc, NULL, NULL FROM approval INDEXED BY approval_task
        WHERE org_id = ?1 AND task_id = ?2 AND (status = 'pending' OR id = ?4)
    UNION ALL SELECT 5, hop_id, version, doc, NULL, NULL FROM cancel_intent INDEXED BY cancel_intent_task
        WHERE org_id = ?1 AND task_id = ?2 AND due_at IS NOT NULL
    UNION ALL SELECT 6, i.id, i.version, i.doc, NULL, NULL FROM hop AS h INDEXED BY hop_task
        CROSS JOIN inbox AS i INDEXED BY inbox_open ON i.org_id = ?1 AND i.hop_id = h.id AND i.due_at IS NOT NULL
        WHERE h.org_id = ?1 AND h.task_id = ?2
    UNION ALL SELECT 7, id, version, NULL, salt, bytes FROM payload INDEXED BY payload_task
        WHERE org_id = ?1 AND task_id = ?2";

/// Everything that an org's registry is built from, as of one moment.
pub(super) const REGISTRY: &str = "
    SELECT 0 AS part, '' AS key, version, '' AS doc FROM registry WHERE org_id = ?1
    UNION ALL SELECT 1, key, version, doc FROM foreign_agent_registry WHERE org_id = ?1
    UNION ALL SELECT 2, name, version, doc FROM role WHERE org_id = ?1
    UNION ALL SELECT 3, '', version, mode FROM egress_mode WHERE org_id = ?1
    UNION ALL SELECT * FROM (SELECT 4, '', version, doc FROM policy WHERE org_id = ?1
        ORDER BY policy_version DESC LIMIT 1)
    UNION ALL SELECT 5, scope, version, doc FROM budget WHERE org_id = ?1
    UNION ALL SELECT 6, agent_key, version, '' FROM contact WHERE org_id = ?1";

pub(super) const DOOR: &str = "
    SELECT r.doc, b.foreign_task_id, b.foreign_agent_key, b.registry_version,
        (SELECT count(*) FROM inbox AS i INDEXED BY inbox_open
            WHERE i.org_id = r.org_id AND i.hop_id = r.hop_id AND i.due_at IS NOT NULL),
        (SELECT coalesce(sum(length(p.bytes)), 0) FROM inbox AS i INDEXED BY inbox_open
            JOIN payload AS p ON p.org_id = i.org_id AND p.id = i.doc ->> 'body'
            WHERE i.org_id = r.org_id AND i.hop_id = r.hop_id AND i.due_at IS NOT NULL)
    FROM callback_route AS r
    JOIN a2a_bridge AS b ON b.org_id = r.org_id AND b.id = r.hop_id
    WHERE r.org_id = ?1 AND r.callback_id = ?2";
pub(super) const READY: &str = "
    SELECT created_at, id FROM envelope INDEXED BY envelope_ready
    WHERE org_id = ?1 AND to_endpoint = ?2 AND state = 'ready'
    ORDER BY created_at, id LIMIT ?3";
pub(super) const SETTLED: &str = "
    SELECT EXISTS (SELECT 1 FROM ledger WHERE org_id = ?1 AND change_id = ?2)
        OR EXISTS (SELECT 1 FROM silent_change WHERE org_id = ?1 AND change_id = ?2)";

// -- listings: newest first, `?2` below which id, `?3` how many ----------------------------------

pub(super) const TASKS: &str = "
    SELECT id, doc FROM task WHERE org_id = ?1 AND id < ?2 AND (?4 IS NULL OR due_at < ?4)
    ORDER BY id DESC LIMIT ?3";
pub(super) const TASKS_BY_STATUS: &str = "
    SELECT id, doc FROM task INDEXED BY task_status WHERE org_id = ?1 AND status = ?5 AND id < ?2 AND (?4 IS NULL OR due_at < ?4)
        AND (?6 IS NULL OR workflow_name = ?6)
    ORDER BY id DESC LIMIT ?3";
pub(super) const TASKS_BY_WORKFLOW: &str = "
    SELECT id, doc FROM task INDEXED BY task_workflow WHERE org_id = ?1 AND workflow_name = ?5 AND id < ?2
        AND (?4 IS NULL OR due_at < ?4)
    ORDER BY id DESC LIMIT ?3";
pub(super) const TASKS_BY_AGENT: &str = "
    SELECT t.id, t.doc FROM hop AS h INDEXED BY hop_endpoint
        CROSS JOIN task AS t ON t.org_id = ?1 AND t.id = h.task_id
    WHERE h.org_id = ?1 AND h.to_endpoint = ?5 AND h.task_id < ?2 AND (?4 IS NULL OR t.due_at < ?4)
        AND (?6 IS NULL OR t.status = ?6) AND (?7 IS NULL OR t.workflow_name = ?7)
    GROUP BY h.task_id ORDER BY h.task_id DESC LIMIT ?3";
pub(super) const APPROVALS: &str = "
    SELECT id, doc FROM approval WHERE org_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
pub(super) const APPROVALS_BY_STATUS: &str = "
    SELECT id, doc FROM approval INDEXED BY approval_status WHERE org_id = ?1 AND status = ?4 AND id < ?2 ORDER BY id DESC LIMIT ?3";
pub(super) const DEAD_LETTER: &str = "SELECT doc, version FROM dead_letter WHERE org_id = ?1 AND id = ?2";
pub(super) const DEAD_LETTERS: &str = "
    SELECT id, doc FROM dead_letter WHERE org_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

pub(super) const EVENTS: &str = "
    SELECT id, at, event, data FROM task_event WHERE org_id = ?1 AND task_id = ?2 AND id > ?3 ORDER BY id LIMIT ?4";
pub(super) const WORKFLOWS: &str = "
    SELECT name, doc FROM workflow AS w WHERE org_id = ?1 AND workflow_version = (
        SELECT max(workflow_version) FROM workflow WHERE org_id = ?1 AND name = w.name)
    ORDER BY name";
pub(super) const WORKFLOW: &str = "
    SELECT name, doc FROM workflow WHERE org_id = ?1 AND name = ?2 AND (?3 IS NULL OR workflow_version = ?3)
    ORDER BY workflow_version DESC LIMIT 1";
pub(super) const POLICY: &str = "
    SELECT doc FROM policy WHERE org_id = ?1 AND policy_version = ?2";
pub(super) const API_KEYS: &str = "
    SELECT id, doc, version FROM api_key WHERE org_id = ?1 ORDER BY created_at, id";
pub(super) const API_KEY: &str = "SELECT id, doc, version FROM api_key WHERE org_id = ?1 AND id = ?2";
pub(super) const DONE: &str = "
    SELECT key, doc FROM idempotency WHERE org_id = ?1 AND key_id = ?2 AND route = ?3 AND key = ?4";
/// The list is the index's own, word for word: only so is it used.
pub(super) const OPEN_HOPS: &str = "
    SELECT count(*) FROM a2a_bridge INDEXED BY a2a_bridge_open WHERE org_id = ?1
        AND status IN ('awaiting_approval', 'ready', 'sending', 'send_unknown', 'working', 'input_required', 'auth_required')";
pub(super) const BALANCE: &str = "
    SELECT reserved_microusd, settled_microusd FROM account WHERE org_id = ?1 AND scope = ?2 AND since = ?3";
pub(super) const LAST_CALLBACK: &str = "SELECT max(until) FROM callback_route WHERE org_id = ?1";
pub(super) const HOPS_NOW: &str = "
    SELECT status, count(*), min(created_at) FROM a2a_bridge INDEXED BY a2a_bridge_due
    WHERE org_id = ?1 AND due_at IS NOT NULL GROUP BY status";
pub(super) const READY_NOW: &str = "
    SELECT to_endpoint, count(*), min(created_at) FROM envelope INDEXED BY envelope_due
    WHERE org_id = ?1 AND due_at IS NOT NULL AND state = 'ready' GROUP BY to_endpoint";
pub(super) const LEASED_NOW: &str = "
    SELECT 'leased', count(*), min(created_at) FROM envelope INDEXED BY envelope_due
    WHERE org_id = ?1 AND due_at IS NOT NULL AND state = 'leased' AND doc ->> '$.state.is' = 'leased'";
pub(super) const INBOX_NOW: &str = "
    SELECT 'inbox', count(*), min(at) FROM inbox INDEXED BY inbox_due WHERE org_id = ?1 AND due_at IS NOT NULL";
pub(super) const APPROVALS_NOW: &str = "
    SELECT 'approvals', count(*), min(created_at) FROM approval INDEXED BY approval_status
    WHERE org_id = ?1 AND status = 'pending'";
pub(super) const TASKS_NOW: &str = "
    SELECT 'tasks', count(*), NULL FROM task INDEXED BY task_status
    WHERE org_id = ?1 AND status IN ('running', 'awaiting_approval', 'awaiting_input')";
pub(super) const DEAD_NOW: &str = "SELECT 'dead', count(*), min(at) FROM dead_letter WHERE org_id = ?1";
pub(super) const PAYLOAD: &str = "SELECT salt, bytes FROM payload WHERE org_id = ?1 AND id = ?2";
pub(super) const NOTE: &str = "SELECT text FROM note WHERE org_id = ?1 AND digest = ?2";
pub(super) const HEAD: &str = "SELECT size, hash FROM ledger_head WHERE org_id = ?1";
pub(super) const RECORDS: &str = "
    SELECT seq, bytes, hash FROM ledger WHERE org_id = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3";
pub(super) const RECORDS_OF: &str = "
    SELECT seq, bytes, hash FROM ledger INDEXED BY ledger_task WHERE org_id = ?1 AND task_id = ?2 ORDER BY seq";
pub(super) const SETTING: &str = "SELECT value, version FROM setting WHERE org_id = ?1 AND name = ?2";
pub(super) const CHECKPOINT: &str = "
    SELECT note FROM checkpoint WHERE org_id = ?1 ORDER BY size DESC LIMIT 1";

// -- costs: `?2` from, `?3` to, which is out -----------------------------------------------------

pub(super) const COSTS_BY_AGENT: &str = "
    SELECT coalesce(CASE WHEN h.to_endpoint LIKE 'agent:%' THEN substr(h.to_endpoint, 7) ELSE h.to_endpoint END, '-'),
        count(DISTINCT CASE WHEN h.to_endpoint LIKE 'agent:%' THEN c.hop_id END),
        max(0, sum(c.settled_delta)), max(0, sum(c.reserved_delta))
    FROM cost_entry AS c LEFT JOIN hop AS h ON h.org_id = c.org_id AND h.id = c.hop_id
    WHERE c.org_id = ?1 AND c.at >= ?2 AND c.at < ?3 GROUP BY 1 ORDER BY 1";
pub(super) const COSTS_BY_WORKFLOW: &str = "
    SELECT coalesce(t.workflow_name, '-'),
        count(DISTINCT CASE WHEN h.to_endpoint LIKE 'agent:%' THEN c.hop_id END),
        max(0, sum(c.settled_delta)), max(0, sum(c.reserved_delta))
    FROM cost_entry AS c LEFT JOIN hop AS h ON h.org_id = c.org_id AND h.id = c.hop_id
        LEFT JOIN task AS t ON t.org_id = h.org_id AND t.id = h.task_id
    WHERE c.org_id = ?1 AND c.at >= ?2 AND c.at < ?3 GROUP BY 1 ORDER BY 1";
pub(super) const COSTS_BY_TASK: &str = "
    SELECT coalesce(h.task_id, '-'),
        count(DISTINCT CASE WHEN h.to_endpoint LIKE 'agent:%' THEN c.hop_id END),
        max(0, sum(c.settled_delta)), max(0, sum(c.reserved_delta))
    FROM cost_entry AS c LEFT JOIN hop AS h ON h.org_id = c.org_id AND h.id = c.hop_id
    WHERE c.org_id = ?1 AND c.at >= ?2 AND c.at < ?3 GROUP BY 1 ORDER BY 1";
pub(super) const COSTS_BY_DAY: &str = "
    SELECT strftime('%Y-%m-%d', c.at / 1000000, 'unixepoch'),
        count(DISTINCT CASE WHEN h.to_endpoint LIKE 'agent:%' THEN c.hop_id END),
        max(0, sum(c.settled_delta)), max(0, sum(c.reserved_delta))
    FROM cost_entry AS c LEFT JOIN hop AS h ON h.org_id = c.org_id AND h.id = c.hop_id
    WHERE c.org_id = ?1 AND c.at >= ?2 AND c.at < ?3 GROUP BY 1 ORDER BY 1";
