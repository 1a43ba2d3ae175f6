//! How a wish becomes a change of what governs: load, decide, commit, show; anew when somebody was faster.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use exeat_core::change::{DueKind, Key};
use exeat_core::gate::verdict::Governor;
use exeat_core::id::{AgentKey, Ids};
use exeat_core::ledger::data::Governs;
use exeat_core::registry::Registry;
use exeat_core::registry::change::entry::Standing;
use exeat_core::registry::change::{Acting, AskedBefore, Change, Earlier, Operators, asked_name, row_of};
use exeat_core::time::Timestamp;
use exeat_core::walk::{Act, Committed};
use http::StatusCode;
use serde_json::Value;

use crate::app::App;
use crate::auth::Caller;
use crate::idempotency::Once;
use crate::problem::{Code, Problem};

/// How often a change is decided anew when its rows have moved.
const TRIES: u32 = 8;

/// What one try is decided on.
pub struct Ground {
    /// The store's time.
    pub now: Timestamp,
    /// What governs now.
    pub registry: Arc<Registry>,
    governor: Arc<dyn Governor>,
    seed: [u8; 32],
    operators: Operators,
}

impl Ground {
    /// Loads it.
    ///
    /// # Errors
    /// If the record can't be read.
    pub async fn load(app: &App, caller: &Caller) -> Result<Self, Problem> {
        let registry = app.ports.store.registry(caller.org()).await?;
        let operators =
            if app.settings.switches.single_operator { Operators::Single } else { Operators::Several };
        Ok(Self {
            now: app.ports.store.now().await?,
            governor: app.ports.governors.of(&registry),
            registry,
            seed: app.ports.entropy.seed(),
            operators,
        })
    }

    /// For the caller to decide on.
    #[must_use]
    pub fn acting<'a>(&'a self, caller: &'a Caller) -> Acting<'a> {
        Acting {
            now: self.now,
            registry: &self.registry,
            by: &caller.key,
            operators: self.operators,
            governor: self.governor.as_ref(),
            ids: Ids::new(self.now, self.seed),
        }
    }

    /// New ids, apart from those of the decision.
    #[must_use]
    pub fn ids(&self, app: &App) -> Ids {
        Ids::new(self.now, app.ports.entropy.seed())
    }

    /// What stands of an entry's current version beside what it says.
    ///
    /// # Errors
    /// If the record can't be read.
    pub async fn standing(&self, app: &App, caller: &Caller, key: &AgentKey) -> Result<Standing, Problem> {
        let Some(agent) = self.registry.agent(key) else { return Ok(Standing::default()) };
        let row = app.archive.version(caller.org(), &row_of(agent)).await?;
        let writer = app.archive.api_key(&agent.written_by).await?.map(|(key, _)| key);
        Ok(Standing { row, writer: writer.filter(|k| k.org == *caller.org()) })
    }
}

/// The version of a row.
///
/// # Errors
/// If the record can't be read.
pub async fn version(app: &App, caller: &Caller, key: &Key) -> Result<u64, Problem> {
    Ok(app.archive.version(caller.org(), key).await?)
}

/// What a first person asked for earlier.
///
/// # Errors
/// If the record can't be read.
pub async fn earlier(app: &App, caller: &Caller, what: Governs) -> Result<Earlier, Problem> {
    let Some((value, version)) = app.archive.setting(caller.org(), &asked_name(what)).await? else {
        return Ok(Earlier::default());
    };
    let asked: Option<AskedBefore> = serde_json::from_value(value).ok();
    let key = match &asked {
        Some(a) => app.archive.api_key(&a.by).await?.map(|(key, _)| key),
        None => None,
    };
    Ok(Earlier { asked, version, key: key.filter(|k| k.org == *caller.org()) })
}

/// Tries until it is done, or too often.
///
/// # Errors
/// What a try says; `version_conflict` if others are faster each time.
pub async fn until_done<F>(attempt: impl Fn() -> F + Send) -> Result<Response, Problem>
where
    F: Future<Output = Result<Option<Response>, Problem>> + Send,
{
    for _ in 0..TRIES {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
    }
    Err(Problem::new(Code::VersionConflict, "Others changed it again and again.").retry_after(1))
}

/// Makes a change durable, and its answer. None: somebody was faster.
///
/// # Errors
/// Why it isn't durable; `four_eyes_required` once a first person's word is.
pub async fn settle<T>(
    app: &App,
    change: Change<T>,
    once: &Once,
    made: StatusCode,
    show: impl Fn(&T, Answer) -> Value,
) -> Result<Option<Response>, Problem> {
    let (value, mut set) = match change {
        Change::Same(value) => {
            return Ok(Some((StatusCode::OK, Json(show(&value, Answer::Given))).into_response()));
        }
        Change::Made(value, set) => (Some(value), set),
        Change::Asked(set) => (None, set),
    };
    let answer = value.as_ref().map(|v| show(v, Answer::Given));
    let kept = value.as_ref().map(|v| show(v, Answer::Kept));
    set.writes.extend(kept.and_then(|kept| once.row(made, &kept, set.at)));
    match app.ports.commit(*set).await? {
        Committed::Moved => return Ok(None),
        Committed::Learned(lesson) => return Err(Problem::internal(&format_args!("{lesson:?}"))),
        Committed::Durable(mut acts) => {
            // What waited for another rule may go now.
            acts.push(Act::Due(DueKind::Bridge));
            app.runtime.act(acts);
        }
    }
    match answer {
        Some(answer) => Ok(Some((made, Json(answer)).into_response())),
        None => Err(Problem::new(
            Code::FourEyesRequired,
            "Your wish is noted. It is done once a second person asks for the same within a day.",
        )),
    }
}

/// Which copy of an answer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The one that the caller gets.
    Given,
    /// The one that is stored for a replay: without what is shown only once.
    Kept,
}
