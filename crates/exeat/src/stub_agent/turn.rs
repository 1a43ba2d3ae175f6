//! One turn of a task, from its message to its end, with the pushes on the way.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::Stub;
use super::push::{Copies, deliver};
use super::script::{Content, Moment, Order, PushPlan};
use super::world::State;

/// A turn to run.
pub(super) struct Turn {
    pub(super) task: String,
    pub(super) turn: u32,
    pub(super) later: Option<Duration>,
    pub(super) push: PushPlan,
}

/// Runs a turn. `answered` fires when the send was answered; `pushed` is let go once an early push is out.
pub(super) async fn run(stub: Arc<Stub>, turn: Turn, answered: CancellationToken, pushed: DropGuard) {
    let lies = turn.push.content == Content::Lie;
    match turn.push.moment {
        Moment::Never => {
            ripen(&stub, &turn).await;
            return;
        }
        Moment::BeforeAnswer => {
            if lies {
                // The lie is early; the truth comes in its own time and isn't pushed.
                end(&stub, &turn).await;
                drop(pushed);
                ripen(&stub, &turn).await;
                return;
            }
            if ripen(&stub, &turn).await {
                end(&stub, &turn).await;
            }
            drop(pushed);
        }
        Moment::AfterAnswer if lies => {
            let lie = async {
                answered.cancelled().await;
                end(&stub, &turn).await;
            };
            tokio::join!(lie, ripen(&stub, &turn));
            return;
        }
        Moment::AfterAnswer => {
            if ripen_and_tell(&stub, &turn, &answered).await {
                end(&stub, &turn).await;
            }
        }
    }
    if turn.push.order == Order::Reversed {
        deliver(&stub, &turn.task, State::Working, Copies::One).await;
    }
}

/// Pushes a cancellation that the caller asked for, after its answer.
pub(super) async fn canceled(stub: Arc<Stub>, task: String, answered: CancellationToken) {
    answered.cancelled().await;
    let moment = stub.world().task(&task).map(|task| task.push.moment);
    if !matches!(moment, Ok(Moment::Never) | Err(_)) {
        deliver(&stub, &task, State::Canceled, Copies::One).await;
    }
}

/// Waits until the turn ends; says whether it ended as ordered.
async fn ripen(stub: &Stub, turn: &Turn) -> bool {
    match turn.later {
        None => true,
        Some(later) => {
            tokio::time::sleep(later).await;
            stub.world().settle(&turn.task, turn.turn)
        }
    }
}

/// As [`ripen`], and pushes `working` meanwhile, if the answer is out in time.
async fn ripen_and_tell(stub: &Arc<Stub>, turn: &Turn, answered: &CancellationToken) -> bool {
    if turn.later.is_none() {
        answered.cancelled().await;
        return true;
    }
    let ended = CancellationToken::new();
    let telling = async {
        let in_order = turn.push.order == Order::AsItHappened;
        tokio::select! {
            biased;
            () = answered.cancelled(), if in_order => {
                deliver(stub, &turn.task, State::Working, Copies::One).await;
            }
            () = ended.cancelled() => {}
        }
    };
    let ending = async {
        let settled = ripen(stub, turn).await;
        ended.cancel();
        settled
    };
    tokio::join!(telling, ending).1
}

/// Pushes the end of a turn: as it is, or the lie that it is completed.
async fn end(stub: &Arc<Stub>, turn: &Turn) {
    let state = match turn.push.content {
        Content::Lie => Some(State::Completed),
        Content::Truth | Content::OtherTask => stub.world().task(&turn.task).ok().map(|task| task.state),
    };
    if let Some(state) = state {
        deliver(stub, &turn.task, state, Copies::AsOrdered).await;
    }
}
