//! Everything that a settled batch writes, as one sheet per statement, parents first.

use std::collections::{BTreeMap, BTreeSet};

use exeat_core::change::Row;
use exeat_core::endpoint::Endpoint;
use serde_json::{Value, json};

use super::rows::{Sheet, Table, edge_columns, int, lay, scope_column, time, word};
use super::sql;
use super::writer::Work;

/// The statements of a batch with their sheets, in the order in which they must run.
///
/// # Errors
/// If a row has no JSON form.
pub(super) fn all(work: &Work<'_>) -> Result<Vec<(&'static str, Sheet)>, serde_json::Error> {
    let mut tables: BTreeMap<Table, Sheet> = BTreeMap::new();
    for (key, (version, row, at)) in work.rows() {
        lay(tables.entry(Table::of(&key)).or_insert_with(Sheet::new), version, row, at)?;
    }
    let mut sheets = Vec::with_capacity(tables.len() + 8);
    for (table, sheet) in tables {
        sheets.push((table.put(), sheet));
        match table {
            Table::Bridge => sheets.push((sql::PUT_HOPS, bridge_hops(work))),
            Table::Task => sheets.push((sql::PUT_HOPS, task_hops(work))),
            Table::Envelope => sheets.push((sql::PUT_LEASES, leases(work))),
            _ => {}
        }
    }
    let (ledger, edges, silent) = records(work);
    let costs = [(sql::PUT_ACCOUNTS, accounts(work)), (sql::PUT_COSTS, costs(work))];
    sheets.extend([(sql::APPEND, ledger), (sql::PUT_EDGES, edges), (sql::PUT_SILENT, silent)]);
    sheets.extend(costs);
    sheets.push((sql::PUT_EVENTS, events(work)?));
    sheets.retain(|(_, sheet)| !sheet.is_empty());
    Ok(sheets)
}

fn rows<'a>(work: &'a Work<'_>) -> impl Iterator<Item = &'a Row> {
    work.planned.iter().flat_map(|p| p.set.writes.iter().map(|w| &w.row))
}

fn task_hops(work: &Work<'_>) -> Sheet {
    let mut sheet = Sheet::new();
    for row in rows(work) {
        if let Row::Task(t) = row {
            t.hops.iter().for_each(|h| sheet.bare(vec![json!(h.id), json!(t.id), json!(h.to)]));
        }
    }
    sheet
}

fn bridge_hops(work: &Work<'_>) -> Sheet {
    let mut sheet = Sheet::new();
    for row in rows(work) {
        if let Row::Bridge(b) = row {
            sheet.bare(vec![json!(b.hop), json!(b.task), json!(Endpoint::Agent(b.agent.clone()))]);
        }
    }
    sheet
}

fn leases(work: &Work<'_>) -> Sheet {
    let mut sheet = Sheet::new();
    for row in rows(work) {
        if let Row::Envelope(e) = row
            && let Some(lease) = e.lease()
        {
            sheet.bare(vec![json!(lease), json!(e.id)]);
        }
    }
    sheet
}

fn records(work: &Work<'_>) -> (Sheet, Sheet, Sheet) {
    let (mut ledger, mut edges, mut silent) = (Sheet::new(), Sheet::new(), Sheet::new());
    for p in &work.planned {
        if p.records.is_empty() {
            silent.bare(vec![json!(p.set.id), time(p.set.at)]);
        }
        for r in &p.records {
            let record = &r.record;
            let (hash, kind) = (hex::encode(r.hash), record.data.kind().as_str());
            let columns: [Value; 5] =
                [json!(record.seq), json!(hash), json!(kind), json!(record.task), json!(p.set.id)];
            ledger.with(&r.bytes, columns);
            if let Some(key) = record.edge_key() {
                let mut columns = edge_columns(&key);
                columns.push(json!(record.seq));
                edges.bare(columns);
            }
        }
    }
    (ledger, edges, silent)
}

fn accounts(work: &Work<'_>) -> Sheet {
    let moved: BTreeSet<_> = work
        .planned
        .iter()
        .flat_map(|p| p.set.costs.iter().flat_map(|m| m.accounts.iter().map(|(a, _)| a)))
        .collect();
    let mut sheet = Sheet::new();
    for account in moved {
        let balance = work.ground.balances.get(account).copied().unwrap_or_default();
        sheet.bare(vec![
            json!(scope_column(&account.scope)),
            time(account.since),
            json!(int(balance.reserved_microusd)),
            json!(int(balance.settled_microusd)),
        ]);
    }
    sheet
}

fn costs(work: &Work<'_>) -> Sheet {
    let mut sheet = Sheet::new();
    for p in &work.planned {
        for m in &p.set.costs {
            sheet.bare(vec![
                time(p.set.at),
                json!(p.set.id),
                json!(m.hop),
                json!(m.turn),
                json!(word(&m.entry)),
                json!(int(m.amount_microusd)),
                json!(m.reserved_delta),
                json!(m.settled_delta),
            ]);
        }
    }
    sheet
}

fn events(work: &Work<'_>) -> Result<Sheet, serde_json::Error> {
    let mut sheet = Sheet::new();
    for p in &work.planned {
        for (id, e) in &p.events {
            sheet.with(
                &serde_json::to_vec(&e.data)?,
                [json!(e.task), json!(id), time(p.set.at), json!(e.event)],
            );
        }
    }
    Ok(sheet)
}
