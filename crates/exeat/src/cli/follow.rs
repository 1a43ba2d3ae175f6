//! Waiting for a task: by its events, across restarts of the server, until it ends or the patience does.
//!
//! The events only tell how it goes. That it ended is read from the task itself.

use std::time::Duration;

use http::header::{ACCEPT, HeaderName};
use serde_json::Value;

use super::Session;
use crate::client::sse::{Event, Reader};
use crate::client::{Call, CallError, Streamed, pause};
use crate::failure::{Failure, Problem};
use crate::show::task::{ending, status};

/// How a wait ended.
pub(crate) enum Wait {
    /// The task ended.
    Ended(Value),
    /// The patience ended first; the task as last seen, if it was.
    TimedOut(Option<Value>),
}

/// How long a server that is asked by the call that began the task may take to answer.
const ASKED_AGAIN: u64 = 20;

/// The server sends a comment every 15 s; three missed are a dead connection.
const SILENCE: Duration = Duration::from_secs(45);

/// A task that this command began: as the server gave it, and by which call.
pub(crate) struct Begun {
    /// The task.
    pub(crate) task: Value,
    /// The call. Made again, it does nothing twice, and gives the task to whoever may begin one but not read any.
    pub(crate) call: Call,
}

/// Follows a task to its end. `begun` says that this command began it: then the server was there,
/// and is waited for as long as the patience lasts. `tell` gets each event once, in order.
///
/// # Errors
/// If the server refuses, or was never reached.
pub(crate) async fn to_end(
    session: &Session,
    task_id: &str,
    begun: Option<Begun>,
    patience: Option<Duration>,
    tell: &mut dyn FnMut(&Event) -> Result<(), Failure>,
) -> Result<Wait, Failure> {
    let reached = begun.is_some();
    let (seen, again) = begun.map(|b| (b.task, b.call)).unzip();
    let mut follow =
        Follow { session, task_id, last_event: None, seen, again, may_read: true, reached, misses: 0 };
    let followed = match patience {
        Some(p) => tokio::time::timeout(p, follow.run(tell)).await.ok(),
        None => Some(follow.run(tell).await),
    };
    match followed {
        Some(Ok(task)) => Ok(Wait::Ended(task)),
        Some(Err(failure)) => Err(failure),
        None => match follow.last_look().await {
            Some(task) if ending(status(&task)).is_some() => Ok(Wait::Ended(task)),
            Some(task) => Ok(Wait::TimedOut(Some(task))),
            None => Ok(Wait::TimedOut(follow.seen)),
        },
    }
}

struct Follow<'a> {
    session: &'a Session,
    task_id: &'a str,
    last_event: Option<String>,
    seen: Option<Value>,
    again: Option<Call>,
    /// The key may read tasks, as far as is known.
    may_read: bool,
    reached: bool,
    misses: u32,
}

impl Follow<'_> {
    async fn run(&mut self, tell: &mut dyn FnMut(&Event) -> Result<(), Failure>) -> Result<Value, Failure> {
        loop {
            let listened = if self.may_read { self.listen(tell).await? } else { false };
            match self.session.client.json(&self.look(ASKED_AGAIN)).await {
                Ok(task) if ending(status(&task)).is_some() => return Ok(task),
                Ok(task) => {
                    let before = self.seen.as_ref().map(status).unwrap_or_default();
                    if !self.may_read && status(&task) != before {
                        self.session.show.progress(&format!("task {}", status(&task)));
                    }
                    self.saw(task);
                }
                Err(e) => self.missed(e)?,
            }
            // Without events, or after they broke off, it is asked again in a while.
            let rest = if listened { pause(1) } else { pause(self.misses + 2).min(Duration::from_secs(2)) };
            tokio::time::sleep(rest).await;
        }
    }

    fn call(&self, below: &[&str]) -> Call {
        let mut segments = vec!["tasks", self.task_id];
        segments.extend(below);
        Call::get(&segments)
    }

    /// The call that gives the task: reading it, or where the key may not, the call that began it, which then waits.
    fn look(&self, wait_s: u64) -> Call {
        match &self.again {
            Some(begun) if !self.may_read => {
                let prefer = HeaderName::from_static("prefer");
                begun.clone().header(prefer, format!("wait={wait_s}")).long_poll(Duration::from_secs(wait_s))
            }
            _ => self.call(&[]),
        }
    }

    /// Listens until the events end or break off. Was there anything to listen to?
    async fn listen(&mut self, tell: &mut dyn FnMut(&Event) -> Result<(), Failure>) -> Result<bool, Failure> {
        let mut call = self.call(&["events"]).header(ACCEPT, "text/event-stream");
        if let Some(id) = &self.last_event {
            call = call.header(HeaderName::from_static("last-event-id"), id.clone());
        }
        let mut stream = match self.session.client.open(&call).await {
            Ok(stream) => stream,
            // The task tells if it is the task or only its events that aren't there.
            Err(CallError::Refused(p)) if matches!(p.status(), 404..=406) => return Ok(false),
            Err(CallError::Refused(p)) if p.code() == "scope_missing" && self.again.is_some() => {
                self.may_read = false;
                return Ok(false);
            }
            Err(e) => {
                self.missed(e)?;
                return Ok(false);
            }
        };
        self.reached = true;
        self.misses = 0;
        let mut reader = Reader::default();
        let mut heard = false;
        while let Some(events) = next(&mut stream, &mut reader).await {
            for event in events {
                heard = true;
                // Told again after a reconnection that the server didn't resume.
                if event.id.is_some() && !self.is_news(&event) {
                    continue;
                }
                tell(&event)?;
                if is_end(&event) {
                    return Ok(true);
                }
            }
        }
        Ok(heard)
    }

    fn is_news(&mut self, event: &Event) -> bool {
        let number = |id: &Option<String>| id.as_deref().and_then(|i| i.parse::<u64>().ok());
        let news = match (number(&event.id), number(&self.last_event)) {
            (Some(new), Some(old)) => new > old,
            _ => event.id != self.last_event,
        };
        if news {
            self.last_event.clone_from(&event.id);
        }
        news
    }

    fn saw(&mut self, task: Value) {
        self.reached = true;
        self.misses = 0;
        self.seen = Some(task);
    }

    /// Bears what may pass; a server that was never there is given up after three tries.
    fn missed(&mut self, e: CallError) -> Result<(), Failure> {
        self.misses += 1;
        let gone = matches!(e, CallError::Unreachable(_)) && !self.reached && self.misses >= 3;
        if gone || !e.may_pass() {
            let failure = Failure::from(e);
            return Err(match failure {
                Failure::Said(exit, problem) => Failure::of(exit, problem.about_task(self.task_id)),
                other => other,
            });
        }
        if self.misses == 1 {
            let why = match e {
                CallError::Unreachable(why) => why,
                CallError::Refused(p) => Problem::clone(&p).to_string(),
            };
            self.session.show.progress(&format!("the server is away ({why}); still waiting"));
        }
        Ok(())
    }

    async fn last_look(&self) -> Option<Value> {
        let call = self.look(1);
        let look = self.session.client.open(&call);
        tokio::time::timeout(Duration::from_secs(3), async {
            let mut stream = look.await.ok()?;
            let mut body = Vec::new();
            while let Some(piece) = stream.piece(SILENCE).await.ok()? {
                body.extend_from_slice(&piece);
            }
            serde_json::from_slice(&body).ok()
        })
        .await
        .ok()
        .flatten()
    }
}

/// The next events; `None` when they end or break off, which comes to the same: the task is asked.
async fn next(stream: &mut Streamed, reader: &mut Reader) -> Option<Vec<Event>> {
    let piece = stream.piece(SILENCE).await.ok().flatten()?;
    reader.read(&piece).ok()
}

fn is_end(event: &Event) -> bool {
    event.event == "task"
        && serde_json::from_str::<Value>(&event.data).is_ok_and(|d| ending(status(&d)).is_some())
}
