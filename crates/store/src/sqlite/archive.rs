//! The questions of doors and operators.

use std::collections::BTreeMap;

use async_trait::async_trait;
use exeat_core::approval::Approval;
use exeat_core::change::{DeadLetter, Done, Key, PolicyRow, WorkflowRow};
use exeat_core::cost::{Account, Balance};
use exeat_core::endpoint::Endpoint;
use exeat_core::id::{DeadLetterId, KeyId, OrgName, PayloadId, TaskId, WorkflowName};
use exeat_core::ledger::chain::Head;
use exeat_core::ledger::data::ApprovalStatus;
use exeat_core::payload::Sealed;
use exeat_core::ports::{
    Archive, CostBy, CostLine, Crowd, Page, StoredEvent, StoredRecord, TaskFilter, Unreadable, Vitals,
};
use exeat_core::principal::ApiKey;
use exeat_core::task::Task;
use exeat_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use tokio::sync::oneshot;

use super::read::{count, doc, get, head, keyed, record, sealed, unavailable};
use super::rows::{int, scope_column, word};
use super::writer::Job;
use super::{Closed, Sqlite, ground, sql};

type Asked<'q> = Query<'q, sqlx::Sqlite, SqliteArguments>;

/// Above every id: ids are UUIDs in lower case.
const ABOVE_ALL: &str = "~";

impl Sqlite {
    async fn all(&self, query: Asked<'_>) -> Result<Vec<SqliteRow>, Unreadable> {
        query.fetch_all(&self.readers).await.map_err(|e| unavailable(&e))
    }

    /// How many there are of each, and since when.
    async fn crowds(
        &self,
        statement: &'static str,
        org: &OrgName,
    ) -> Result<BTreeMap<String, Crowd>, Unreadable> {
        let rows = self.all(sqlx::query(statement).bind(org.as_str())).await?;
        let crowd = |row: &SqliteRow| {
            let of: String = get(row, "vitals", "?", 0)?;
            let oldest: Option<i64> = get(row, "vitals", &of, 2)?;
            let count = count(row, "vitals", &of, 1)?;
            Ok((of, Crowd { count, oldest: oldest.map(Timestamp::of_micros) }))
        };
        rows.iter().map(crowd).collect()
    }

    async fn maybe(&self, query: Asked<'_>) -> Result<Option<SqliteRow>, Unreadable> {
        query.fetch_optional(&self.readers).await.map_err(|e| unavailable(&e))
    }
}

/// Binds what every listing binds: the org, where the page begins, and one row more than it shows.
fn listing<'q>(statement: &'static str, org: &'q OrgName, page: &'q Page) -> Asked<'q> {
    let after = page.after.as_deref().unwrap_or(ABOVE_ALL);
    sqlx::query(statement).bind(org.as_str()).bind(after).bind(i64::from(page.limit) + 1)
}

/// Reads a listing's `id, doc` rows; the one row too many only says that there is a next page.
fn paged<T: DeserializeOwned>(
    table: &'static str,
    rows: &[SqliteRow],
    page: &Page,
    own: impl Fn(&T) -> String + Copy,
) -> Result<(Vec<T>, Option<String>), Unreadable> {
    let most = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let shown = rows.iter().take(most).map(|row| {
        let id: &str = get(row, table, "?", 0)?;
        keyed(table, id, get(row, table, id, 1)?, own)
    });
    let shown = shown.collect::<Result<Vec<T>, Unreadable>>()?;
    let next = if rows.len() > most { shown.last().map(own) } else { None };
    Ok((shown, next))
}

fn workflow(row: &SqliteRow) -> Result<WorkflowRow, Unreadable> {
    let name: &str = get(row, "workflow", "?", 0)?;
    keyed("workflow", name, get(row, "workflow", name, 1)?, |w: &WorkflowRow| w.name.to_string())
}

fn api_key(row: &SqliteRow) -> Result<(ApiKey, u64), Unreadable> {
    let id: &str = get(row, "api_key", "?", 0)?;
    let key = keyed("api_key", id, get(row, "api_key", id, 1)?, |k: &ApiKey| k.id.to_string())?;
    Ok((key, count(row, "api_key", id, 2)?))
}

fn cost_line(row: &SqliteRow) -> Result<CostLine, Unreadable> {
    let key: String = get(row, "cost_entry", "?", 0)?;
    Ok(CostLine {
        hops: count(row, "cost_entry", &key, 1)?,
        settled_microusd: count(row, "cost_entry", &key, 2)?,
        reserved_microusd: count(row, "cost_entry", &key, 3)?,
        key,
    })
}

fn told(row: &SqliteRow) -> Result<StoredEvent, Unreadable> {
    let id = count(row, "task_event", "?", 0)?;
    let key = id.to_string();
    Ok(StoredEvent {
        id,
        at: Timestamp::of_micros(get(row, "task_event", &key, 1)?),
        event: get(row, "task_event", &key, 2)?,
        data: doc("task_event", &key, get(row, "task_event", &key, 3)?)?,
    })
}

#[async_trait]
impl Archive for Sqlite {
    async fn tasks(
        &self,
        org: &OrgName,
        filter: &TaskFilter,
        page: &Page,
    ) -> Result<(Vec<Task>, Option<String>), Unreadable> {
        let due = filter.due_before.map(Timestamp::micros);
        let workflow = filter.workflow.as_ref().map(WorkflowName::as_str);
        // The rarest filter leads, so that its index does; the others sift what it yields.
        let query = if let Some(agent) = &filter.agent {
            listing(sql::TASKS_BY_AGENT, org, page)
                .bind(due)
                .bind(Endpoint::Agent(agent.clone()).to_string())
                .bind(filter.status.as_deref())
                .bind(workflow)
        } else if let Some(status) = &filter.status {
            listing(sql::TASKS_BY_STATUS, org, page).bind(due).bind(status).bind(workflow)
        } else if let Some(workflow) = workflow {
            listing(sql::TASKS_BY_WORKFLOW, org, page).bind(due).bind(workflow)
        } else {
            listing(sql::TASKS, org, page).bind(due)
        };
        paged("task", &self.all(query).await?, page, |t: &Task| t.id.to_string())
    }

    async fn events(
        &self,
        org: &OrgName,
        task: TaskId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, Unreadable> {
        let query = sqlx::query(sql::EVENTS).bind(org.as_str()).bind(task.to_string());
        let rows = self.all(query.bind(int(after)).bind(i64::from(limit))).await?;
        rows.iter().map(told).collect()
    }

    async fn approvals(
        &self,
        org: &OrgName,
        status: Option<ApprovalStatus>,
        page: &Page,
    ) -> Result<(Vec<Approval>, Option<String>), Unreadable> {
        let query = match status {
            Some(status) => listing(sql::APPROVALS_BY_STATUS, org, page).bind(word(&status)),
            None => listing(sql::APPROVALS, org, page),
        };
        paged("approval", &self.all(query).await?, page, |a: &Approval| a.id.to_string())
    }

    async fn workflows(&self, org: &OrgName) -> Result<Vec<WorkflowRow>, Unreadable> {
        self.all(sqlx::query(sql::WORKFLOWS).bind(org.as_str())).await?.iter().map(workflow).collect()
    }

    async fn workflow(
        &self,
        org: &OrgName,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<WorkflowRow>, Unreadable> {
        let query = sqlx::query(sql::WORKFLOW).bind(org.as_str()).bind(name.as_str());
        self.maybe(query.bind(version.map(i64::from))).await?.as_ref().map(workflow).transpose()
    }

    async fn policy(&self, org: &OrgName, version: u32) -> Result<Option<PolicyRow>, Unreadable> {
        let row = self.maybe(sqlx::query(sql::POLICY).bind(org.as_str()).bind(i64::from(version))).await?;
        let key = version.to_string();
        row.map(|row| {
            keyed("policy", &key, get(&row, "policy", &key, 0)?, |p: &PolicyRow| p.version.to_string())
        })
        .transpose()
    }

    async fn api_keys(&self, org: &OrgName) -> Result<Vec<(ApiKey, u64)>, Unreadable> {
        self.all(sqlx::query(sql::API_KEYS).bind(org.as_str())).await?.iter().map(api_key).collect()
    }

    async fn api_key(&self, id: &KeyId) -> Result<Option<(ApiKey, u64)>, Unreadable> {
        let query = sqlx::query(sql::API_KEY).bind(self.org.as_str()).bind(id.as_str());
        self.maybe(query).await?.as_ref().map(api_key).transpose()
    }

    async fn done(
        &self,
        org: &OrgName,
        by: &KeyId,
        route: &str,
        key: &str,
    ) -> Result<Option<Done>, Unreadable> {
        let query = sqlx::query(sql::DONE).bind(org.as_str()).bind(by.as_str()).bind(route).bind(key);
        let row = self.maybe(query).await?;
        row.map(|row| doc("idempotency", key, get(&row, "idempotency", key, 1)?)).transpose()
    }

    async fn dead_letter(
        &self,
        org: &OrgName,
        id: DeadLetterId,
    ) -> Result<Option<(DeadLetter, u64)>, Unreadable> {
        let key = id.to_string();
        let row = self.maybe(sqlx::query(sql::DEAD_LETTER).bind(org.as_str()).bind(&key)).await?;
        let Some(row) = row else { return Ok(None) };
        let version = count(&row, "dead_letter", &key, 1)?;
        Ok(Some((doc("dead_letter", &key, get(&row, "dead_letter", &key, 0)?)?, version)))
    }

    async fn dead_letters(
        &self,
        org: &OrgName,
        page: &Page,
    ) -> Result<(Vec<DeadLetter>, Option<String>), Unreadable> {
        let rows = self.all(listing(sql::DEAD_LETTERS, org, page)).await?;
        paged("dead_letter", &rows, page, |d: &DeadLetter| d.id.to_string())
    }

    async fn costs(
        &self,
        org: &OrgName,
        by: CostBy,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CostLine>, Unreadable> {
        let statement = match by {
            CostBy::Agent => sql::COSTS_BY_AGENT,
            CostBy::Workflow => sql::COSTS_BY_WORKFLOW,
            CostBy::Task => sql::COSTS_BY_TASK,
            CostBy::Day => sql::COSTS_BY_DAY,
        };
        let query = sqlx::query(statement).bind(org.as_str()).bind(from.micros()).bind(to.micros());
        self.all(query).await?.iter().map(cost_line).collect()
    }

    async fn open_hops(&self, org: &OrgName) -> Result<u64, Unreadable> {
        let row = self.maybe(sqlx::query(sql::OPEN_HOPS).bind(org.as_str())).await?;
        row.map_or(Ok(0), |row| count(&row, "a2a_bridge", "open", 0))
    }

    async fn balance(&self, org: &OrgName, account: &Account) -> Result<Balance, Unreadable> {
        let scope = scope_column(&account.scope);
        let query = sqlx::query(sql::BALANCE).bind(org.as_str()).bind(&scope).bind(account.since.micros());
        let Some(row) = self.maybe(query).await? else { return Ok(Balance::default()) };
        Ok(Balance {
            reserved_microusd: count(&row, "account", &scope, 0)?,
            settled_microusd: count(&row, "account", &scope, 1)?,
        })
    }

    async fn open_tasks(&self, org: &OrgName) -> Result<u64, Unreadable> {
        Ok(self.crowds(sql::TASKS_NOW, org).await?.pop_first().map_or(0, |(_, tasks)| tasks.count))
    }

    async fn vitals(&self, org: &OrgName) -> Result<Vitals, Unreadable> {
        let one =
            |mut crowds: BTreeMap<String, Crowd>| crowds.pop_first().map_or_else(Crowd::default, |(_, c)| c);
        Ok(Vitals {
            hops: self.crowds(sql::HOPS_NOW, org).await?,
            ready: self.crowds(sql::READY_NOW, org).await?,
            leased: one(self.crowds(sql::LEASED_NOW, org).await?),
            inbox: one(self.crowds(sql::INBOX_NOW, org).await?),
            approvals: one(self.crowds(sql::APPROVALS_NOW, org).await?),
            tasks: self.open_tasks(org).await?,
            dead_letters: one(self.crowds(sql::DEAD_NOW, org).await?),
        })
    }

    async fn last_callback(&self, org: &OrgName) -> Result<Option<Timestamp>, Unreadable> {
        let row = self.maybe(sqlx::query(sql::LAST_CALLBACK).bind(org.as_str())).await?;
        let until = row.map(|row| get::<Option<i64>>(&row, "callback_route", "?", 0)).transpose()?;
        Ok(until.flatten().map(Timestamp::of_micros))
    }

    async fn payload(&self, org: &OrgName, id: PayloadId) -> Result<Option<Sealed>, Unreadable> {
        let key = id.to_string();
        let row = self.maybe(sqlx::query(sql::PAYLOAD).bind(org.as_str()).bind(&key)).await?;
        row.map(|row| sealed(&row, &key, 0, 1)).transpose()
    }

    async fn note(&self, org: &OrgName, digest: &str) -> Result<Option<String>, Unreadable> {
        let row = self.maybe(sqlx::query(sql::NOTE).bind(org.as_str()).bind(digest)).await?;
        row.map(|row| get(&row, "note", digest, 0)).transpose()
    }

    async fn head(&self, org: &OrgName) -> Result<Head, Unreadable> {
        let row = self.maybe(sqlx::query(sql::HEAD).bind(org.as_str())).await?;
        row.map_or(Ok(Head::EMPTY), |row| head(&row, 0, 1))
    }

    async fn records(&self, org: &OrgName, from: u64, limit: u32) -> Result<Vec<StoredRecord>, Unreadable> {
        let query = sqlx::query(sql::RECORDS).bind(org.as_str()).bind(int(from)).bind(i64::from(limit));
        self.all(query).await?.iter().map(record).collect()
    }

    async fn records_of(&self, org: &OrgName, task: TaskId) -> Result<Vec<StoredRecord>, Unreadable> {
        let query = sqlx::query(sql::RECORDS_OF).bind(org.as_str()).bind(task.to_string());
        self.all(query).await?.iter().map(record).collect()
    }

    async fn setting(&self, org: &OrgName, name: &str) -> Result<Option<(Value, u64)>, Unreadable> {
        let row = self.maybe(sqlx::query(sql::SETTING).bind(org.as_str()).bind(name)).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some((doc("setting", name, get(&row, "setting", name, 0)?)?, count(&row, "setting", name, 1)?)))
    }

    async fn version(&self, org: &OrgName, key: &Key) -> Result<u64, Unreadable> {
        let mut conn = self.readers.acquire().await.map_err(|e| unavailable(&e))?;
        ground::version(&mut conn, org, key).await
    }

    async fn keep_checkpoint(&self, org: &OrgName, size: u64, note: &str) -> Result<(), Unreadable> {
        self.ours(org)?;
        let (reply, answer) = oneshot::channel();
        self.send(Job::Checkpoint(size, note.to_owned(), reply)).await?;
        answer.await.unwrap_or_else(|_| Err(Closed.into()))
    }

    async fn checkpoint(&self, org: &OrgName) -> Result<Option<String>, Unreadable> {
        let row = self.maybe(sqlx::query(sql::CHECKPOINT).bind(org.as_str())).await?;
        row.map(|row| get(&row, "checkpoint", "note", 0)).transpose()
    }
}
