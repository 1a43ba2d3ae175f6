//! How a domain row lies in its table: which table, under which key, in which columns.

use exeat_core::bridge::Bridge;
use exeat_core::change::{Key, Row};
use exeat_core::cost::Scope;
use exeat_core::envelope::{Envelope, EnvelopeState};
use exeat_core::ledger::EdgeKey;
use exeat_core::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::sql;

/// The tables of rows. A parent stands before what refers to it, which is the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Task,
    Agent,
    Bridge,
    Envelope,
    Approval,
    Payload,
    Route,
    Inbox,
    Cancel,
    DeadLetter,
    Registry,
    Role,
    Mode,
    Policy,
    Budget,
    Workflow,
    Contact,
    ApiKey,
    Idempotency,
    Note,
    Setting,
}

impl Table {
    /// In the order of [`sql::GROUND`].
    pub(super) const ALL: [Self; 21] = [
        Self::Task,
        Self::Agent,
        Self::Bridge,
        Self::Envelope,
        Self::Approval,
        Self::Payload,
        Self::Route,
        Self::Inbox,
        Self::Cancel,
        Self::DeadLetter,
        Self::Registry,
        Self::Role,
        Self::Mode,
        Self::Policy,
        Self::Budget,
        Self::Workflow,
        Self::Contact,
        Self::ApiKey,
        Self::Idempotency,
        Self::Note,
        Self::Setting,
    ];

    pub(super) const fn of(key: &Key) -> Self {
        match key {
            Key::Task(_) => Self::Task,
            Key::Bridge(_) => Self::Bridge,
            Key::Envelope(_) => Self::Envelope,
            Key::Approval(_) => Self::Approval,
            Key::Payload(_) => Self::Payload,
            Key::Route(_) => Self::Route,
            Key::Inbox(_) => Self::Inbox,
            Key::Cancel(..) => Self::Cancel,
            Key::DeadLetter(_) => Self::DeadLetter,
            Key::Registry => Self::Registry,
            Key::Agent(..) => Self::Agent,
            Key::Role(_) => Self::Role,
            Key::Mode => Self::Mode,
            Key::Policy(_) => Self::Policy,
            Key::Budget(_) => Self::Budget,
            Key::Workflow(..) => Self::Workflow,
            Key::ApiKey(_) => Self::ApiKey,
            Key::Idempotency(..) => Self::Idempotency,
            Key::Note(_) => Self::Note,
            Key::Setting(_) => Self::Setting,
            Key::Contact(_) => Self::Contact,
        }
    }

    pub(super) const fn put(self) -> &'static str {
        match self {
            Self::Task => sql::PUT_TASK,
            Self::Agent => sql::PUT_AGENT,
            Self::Bridge => sql::PUT_BRIDGE,
            Self::Envelope => sql::PUT_ENVELOPE,
            Self::Approval => sql::PUT_APPROVAL,
            Self::Payload => sql::PUT_PAYLOAD,
            Self::Route => sql::PUT_ROUTE,
            Self::Inbox => sql::PUT_INBOX,
            Self::Cancel => sql::PUT_CANCEL,
            Self::DeadLetter => sql::PUT_DEAD_LETTER,
            Self::Registry => sql::PUT_REGISTRY,
            Self::Role => sql::PUT_ROLE,
            Self::Mode => sql::PUT_MODE,
            Self::Policy => sql::PUT_POLICY,
            Self::Budget => sql::PUT_BUDGET,
            Self::Workflow => sql::PUT_WORKFLOW,
            Self::Contact => sql::PUT_CONTACT,
            Self::ApiKey => sql::PUT_API_KEY,
            Self::Idempotency => sql::PUT_IDEMPOTENCY,
            Self::Note => sql::PUT_NOTE,
            Self::Setting => sql::PUT_SETTING,
        }
    }

    /// Is the registry built from it?
    pub(super) const fn governs(self) -> bool {
        matches!(
            self,
            Self::Registry
                | Self::Agent
                | Self::Role
                | Self::Mode
                | Self::Policy
                | Self::Budget
                | Self::Contact
        )
    }
}

/// The columns of a key, as questions bind them.
pub(super) fn key_columns(key: &Key) -> Value {
    match key {
        Key::Task(id) => json!([id]),
        Key::Bridge(id) => json!([id]),
        Key::Envelope(id) => json!([id]),
        Key::Approval(id) => json!([id]),
        Key::Payload(id) => json!([id]),
        Key::Route(id) => json!([id]),
        Key::Inbox(id) => json!([id]),
        Key::Cancel(hop, task) => json!([hop, task]),
        Key::DeadLetter(id) => json!([id]),
        Key::Registry | Key::Mode => json!([]),
        Key::Agent(key, version) => json!([key, version]),
        Key::Role(name) => json!([name]),
        Key::Policy(version) => json!([version]),
        Key::Budget(scope) => json!([scope.to_string()]),
        Key::Workflow(name, version) => json!([name, version]),
        Key::ApiKey(id) => json!([id]),
        Key::Idempotency(by, route, key) => json!([by, route, key]),
        Key::Note(digest) => json!([digest]),
        Key::Setting(name) => json!([name]),
        Key::Contact(agent) => json!([agent]),
    }
}

/// The columns of an edge's key.
pub(super) fn edge_columns(edge: &EdgeKey) -> Vec<Value> {
    let hop = edge.hop.map(|h| h.to_string()).unwrap_or_default();
    vec![json!(edge.task), json!(edge.step), json!(hop), json!(edge.turn), json!(edge.dir.as_str())]
}

/// The rows of one table in one statement: columns as JSON, and the texts and bytes behind them in one blob.
pub(super) struct Sheet {
    rows: Vec<Value>,
    heap: Vec<u8>,
}

impl Sheet {
    pub(super) fn new() -> Self {
        // Never empty, so that it is never bound as NULL.
        Self { rows: Vec::new(), heap: vec![0] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A row that is all columns.
    pub(super) fn bare(&mut self, columns: Vec<Value>) {
        self.rows.push(Value::Array(columns));
    }

    /// A row with a text or bytes beside its columns.
    pub(super) fn with(&mut self, behind: &[u8], columns: impl IntoIterator<Item = Value>) {
        // SQL counts from 1.
        let mut row = vec![json!(self.heap.len() + 1), json!(behind.len())];
        row.extend(columns);
        self.heap.extend_from_slice(behind);
        self.rows.push(Value::Array(row));
    }

    /// What is bound as `?2` and `?3`.
    pub(super) fn bound(self) -> (String, Vec<u8>) {
        (Value::Array(self.rows).to_string(), self.heap)
    }
}

/// Lays one row into its table's sheet.
///
/// # Errors
/// If the row has no JSON form.
pub(super) fn lay(
    sheet: &mut Sheet,
    version: u64,
    row: &Row,
    at: Timestamp,
) -> Result<(), serde_json::Error> {
    let due = json!(row.due_at().map(Timestamp::micros));
    let v = json!(version);
    match row {
        Row::Task(t) => {
            let (name, n) = t.workflow.as_ref().map(|w| (&w.name, w.version)).unzip();
            let columns =
                [v, json!(t.id), json!(t.status.as_str()), json!(name), json!(n), time(t.created_at), due];
            sheet.with(&doc(t)?, columns);
        }
        Row::Bridge(b) => sheet.with(&doc(b)?, bridge_columns(v, b, due, at)),
        Row::Envelope(e) => sheet.with(&doc(e)?, envelope_columns(v, e, due)),
        Row::Approval(a) => {
            let columns = [v, json!(a.id), json!(a.task), json!(a.status), time(a.created_at), due];
            sheet.with(&doc(a)?, columns);
        }
        Row::Payload(id, task, sealed) => {
            sheet.with(&sealed.bytes, [v, json!(id), json!(task), json!(hex::encode(sealed.salt))]);
        }
        Row::Route(r) => sheet.with(&doc(r)?, [v, json!(r.callback), json!(r.hop), time(r.until)]),
        Row::Inbox(i) => {
            sheet.with(&doc(i)?, [v, json!(i.id), json!(i.hop), json!(i.digest), time(i.at), due]);
        }
        Row::Cancel(c) => {
            let foreign = c.foreign_task.as_deref().unwrap_or_default();
            sheet.with(&doc(c)?, [v, json!(c.hop), json!(foreign), json!(c.task), due]);
        }
        Row::DeadLetter(d) => {
            sheet.with(&doc(d)?, [v, json!(d.id), json!(d.task), json!(d.kind), time(d.at)]);
        }
        Row::Registry => sheet.with(&[], [v]),
        Row::Agent(a) => sheet.with(&doc(a)?, [v, json!(a.key), json!(a.version), json!(a.status)]),
        Row::Role(r) => sheet.with(&doc(r)?, [v, json!(r.name)]),
        Row::Mode(mode) => sheet.with(word(mode).as_bytes(), [v]),
        Row::Policy(p) => sheet.with(&doc(p)?, [v, json!(p.version)]),
        Row::Budget(scope, budget) => sheet.with(&doc(&(scope, budget))?, [v, json!(scope.to_string())]),
        Row::Workflow(w) => sheet.with(&doc(w)?, [v, json!(w.name), json!(w.version)]),
        Row::Contact(agent) => sheet.with(&[], [v, json!(agent)]),
        Row::ApiKey(k) => sheet.with(&doc(k)?, [v, json!(k.id), time(k.created_at)]),
        Row::Idempotency(by, route, key, done) => {
            sheet.with(&doc(done)?, [v, json!(by), json!(route), json!(key), time(done.at)]);
        }
        Row::Note(digest, salt, text) => {
            sheet.with(text.as_bytes(), [v, json!(digest), json!(hex::encode(salt))]);
        }
        Row::Setting(name, value) => sheet.with(&doc(value)?, [v, json!(name)]),
    }
    Ok(())
}

fn bridge_columns(version: Value, b: &Bridge, due: Value, at: Timestamp) -> [Value; 12] {
    [
        version,
        json!(b.hop),
        json!(b.task),
        json!(b.step),
        json!(b.agent),
        json!(b.registry_version),
        json!(b.foreign.as_ref().map(|f| &f.task)),
        json!(b.callback),
        json!(b.state.as_str()),
        time(b.created_at),
        time(at),
        due,
    ]
}

fn envelope_columns(version: Value, e: &Envelope, due: Value) -> [Value; 7] {
    let state = match e.state {
        EnvelopeState::Ready => "ready",
        // The column tells what may be handed out; a pause is a lease that nobody holds, and `doc` says so.
        EnvelopeState::Paused { .. } | EnvelopeState::Leased { .. } => "leased",
        EnvelopeState::Settled { .. } => "settled",
        EnvelopeState::Void { .. } => "void",
    };
    [version, json!(e.id), json!(e.task), json!(e.to), json!(state), time(e.created_at), due]
}

/// The scope of a budget or an account, as its column has it.
pub(super) fn scope_column(scope: &Scope) -> String {
    scope.to_string()
}

pub(super) fn time(t: Timestamp) -> Value {
    json!(t.micros())
}

/// A number as SQLite holds it. What doesn't fit is more than any real sum.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The word that a fieldless enum is written as.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(s)) => s,
        _ => String::new(),
    }
}

fn doc(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(value)
}
