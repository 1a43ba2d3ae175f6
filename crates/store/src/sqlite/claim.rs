//! Claiming due rows, inside the writing transaction.

use exeat_core::change::{DueKind, Key};
use exeat_core::id::OrgName;
use exeat_core::ports::{DueRow, Find, Unreadable};
use exeat_core::time::Timestamp;
use sqlx::SqliteConnection;

use super::read::{corrupt, count, get, unavailable};
use super::sql;
use super::writer::{Want, receipt};

/// Claims what is due and free, longest due first.
pub(super) async fn take(
    conn: &mut SqliteConnection,
    org: &OrgName,
    want: Want,
    now: Timestamp,
) -> Result<Vec<DueRow>, Unreadable> {
    let (table, statement) = match want.kind {
        DueKind::Task => ("task", sql::CLAIM_TASK),
        DueKind::Bridge => ("a2a_bridge", sql::CLAIM_BRIDGE),
        DueKind::Envelope => ("envelope", sql::CLAIM_ENVELOPE),
        DueKind::Approval => ("approval", sql::CLAIM_APPROVAL),
        DueKind::Inbox => ("inbox", sql::CLAIM_INBOX),
        DueKind::Cancel => ("cancel_intent", sql::CLAIM_CANCEL),
    };
    let query = sqlx::query(statement).bind(org.as_str()).bind(now.micros());
    let query = query.bind((now + want.hold).micros()).bind(i64::from(want.limit));
    let mut due = Vec::new();
    for row in &query.fetch_all(conn).await.map_err(|e| unavailable(&e))? {
        let id: &str = get(row, table, "?", 0)?;
        let other: &str = get(row, table, id, 1)?;
        let fence = count(row, table, id, 2)?;
        let at: i64 = get(row, table, id, 3)?;
        let (key, find) = named(want.kind, id, other).map_err(|e| corrupt(table, id, e))?;
        due.push((at, DueRow { key, find, claim: receipt(org, fence) }));
    }
    due.sort_by(|(a, x), (b, y)| (a, &x.key).cmp(&(b, &y.key)));
    Ok(due.into_iter().map(|(_, row)| row).collect())
}

fn named(kind: DueKind, id: &str, other: &str) -> Result<(Key, Find), exeat_core::id::Malformed> {
    Ok(match kind {
        DueKind::Task => id.parse().map(|t| (Key::Task(t), Find::Task(t)))?,
        DueKind::Bridge => id.parse().map(|h| (Key::Bridge(h), Find::Hop(h)))?,
        DueKind::Envelope => id.parse().map(|e| (Key::Envelope(e), Find::Envelope(e)))?,
        DueKind::Approval => id.parse().map(|a| (Key::Approval(a), Find::Approval(a)))?,
        DueKind::Inbox => (Key::Inbox(id.parse()?), Find::Hop(other.parse()?)),
        DueKind::Cancel => {
            let hop = id.parse()?;
            (Key::Cancel(hop, other.to_owned()), Find::Hop(hop))
        }
    })
}
