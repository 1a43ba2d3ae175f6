//! `exeat stub-agent`: a foreign A2A agent that does what the message tells it to, for demos and tests.
//!
//! It plays the other side, so it is written against the A2A specification (1.0 and 0.3, JSON-RPC) and
//! shares no code with Exeat's own reader of it: every answer is JSON written out here, and can be wrong
//! on its own. It promises nothing to an operator and must never be used as a real agent: it holds
//! everything in memory, dials whatever address a push configuration names, and logs credentials.
//!
//! # What the text of a message can ask for
//!
//! If the first line of the first text part starts with `!`, it holds directives separated by `;` and is
//! dropped: the rest of that part is the text, and a part left empty is dropped too unless it is the only
//! one. Without directives the task is `completed` in the answer, and its artifact `a1` holds the parts
//! that came. A directive that isn't in this table is answered with −32602, and nothing is made.
//!
//! | directive | does |
//! |---|---|
//! | `later D` | answers `working`, ends after D (`500ms 2s 1m 1h`) |
//! | `message` | answers with a bare Message; `later` then only holds it back |
//! | `say T`, `data J` | artifact is the text T in place of the echo; adds a data part (J may hold `;`) |
//! | `ask Q`, `auth` | ends the turn `input-required`, `auth-required`; the next message on the task goes on |
//! | `reject T`, `fail T`, `cancel T` | ends so, T (may be empty) as the status message |
//! | `drop N` | first N sends (1): task made and run, connection closed without a byte |
//! | `status C N` | first N sends (1) get HTTP C, with `Retry-After: 1` for 429 and 503; nothing is made |
//! | `rpc CODE N` | first N sends (all) get that JSON-RPC error; nothing is made |
//! | `redirect URL` | every send gets 307 to URL; nothing is made |
//! | `block D` | holds the answer D, though told to return at once |
//! | `push none` | nothing is pushed |
//! | `push early` | pushes the end before it answers the send; with `later` the answer still says `working` |
//! | `push dup N` | the push of the end goes out N times (2) in parallel |
//! | `push reverse` | the end first, then an older `working` |
//! | `push lie` | answers `working`, pushes `completed`; GetTask says `working` (until `later`, else for ever); the true end is not pushed |
//! | `push other`, `push badtoken` | pushes name a task that isn't ours; carry secrets with one character changed |
//! | `poll lost N` | first N GetTask (all) get −32001 |
//! | `poll C N` | first N GetTask (1) get HTTP C |
//! | `poll flip` | first GetTask says `completed`, all later ones `working` |
//! | `garbage null`, `array`, `html`, `cut`, `deep` | task made and run; the answer is `result: null`, `result: []`, a web page, JSON cut in half, 10,000 nested arrays |
//! | `size N` | artifact is a text of N bytes (`k`, `m` allowed; at most 64 MiB) |
//! | `same` | task made and run; the answer shows the oldest task of all in its place |
//! | `steer` | adds metadata, `referenceTaskIds`, URLs and a "next agent" text to the result |
//!
//! # How they combine
//!
//! - Directives of one kind replace each other, the last wins; `data` adds up; the `push` words set the
//!   moment (`none`, `early`), the number, the order, the content and the secret apart from each other.
//! - Counts (`drop`, `status`, `rpc`) belong to the exact parts of the message, so a resend is recognised by
//!   its content, under the same message id or another; texts that differ count apart. They are worked off
//!   in the order `redirect`, `status`, `rpc`, `drop`: `status 503 2; drop 1` refuses twice, hangs up once.
//! - Looks are worked off in the order HTTP status, `lost`, `flip`.
//! - A send that is held back (`push early`, then `block`) answers with what is true when it is released,
//!   except that `push early` keeps saying `working` with `later`.
//! - A follow-up is a message with its own directives; its `poll` and `push` replace those of the task.
//!
//! # The rest of its manners
//!
//! - A send is answered at once, even if it asks to block: only `block`, `push early`, and `message` with
//!   `later`, hold it back.
//! - The same `messageId` twice makes two tasks, like the reference SDK, unless `--dedup on`.
//! - Pushes: 1.0 gets a `statusUpdate` for `working` and the whole `{"task":…}` for anything else; 0.3 a bare
//!   Task. A task that ends in the answer is pushed as well, after the answer. Three tries while the receiver
//!   is unreachable or answers 5xx. With `--push off` configurations sent along are swallowed silently, and
//!   the configuration methods are refused with −32003.
//! - 1.0 methods need `A2A-Version: 1.x` (else −32009). With `--protocol both`, 0.3 methods that claim 1.0
//!   get −32603. Streaming is refused with −32004.
//! - The card's endpoint is at the authority by which the card was asked for.
//! - `GET /_seen` tells what came: accepted connections, calls, the pieces of work begun by message id, and the
//!   tasks with their states in 0.3 words. It is neither counted nor logged, nor is a connection that
//!   carries nothing else.

mod answer;
mod card;
mod clock;
mod dialect;
mod http;
mod log;
mod parts;
mod poll;
mod push;
mod rpc;
mod script;
mod send;
#[cfg(test)]
mod tests;
mod turn;
mod world;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::log::Log;
use self::world::World;

/// Flags of `exeat stub-agent`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StubAgentArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// Versions of A2A that it speaks
    #[arg(long, value_enum, default_value = "1.0")]
    pub(crate) protocol: Protocol,
    /// Whether it claims and does push notifications
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) push: Switch,
    /// Bearer token that calls must carry
    #[arg(long, value_name = "BEARER")]
    pub(crate) token: Option<String>,
    /// File that gets a JSON line for every accepted connection, request and push
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Whether a repeated message id names the work that it began
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) dedup: Switch,
}

/// Versions of A2A that the stub speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// 1.0 alone.
    #[value(name = "1.0")]
    V1,
    /// 0.3 alone.
    #[value(name = "0.3")]
    V03,
    /// Both at one address, with a hybrid card.
    Both,
}

/// A flag that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// Runs the stub until `shutdown`, after printing `ready http://ADDR` on stdout.
///
/// # Errors
/// If it can't listen, or can't open its log.
pub(crate) async fn run(args: StubAgentArgs, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(&args.listen).await.with_context(|| format!("can't listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let stub = Stub::new(args, address)?;
    announce(address)?;
    serve(stub, listener, shutdown).await;
    Ok(())
}

fn announce(address: SocketAddr) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready http://{address}")?;
    out.flush()
}

/// Accepts until `shutdown`; then drops every connection and every running task.
async fn serve(stub: Arc<Stub>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => stub.spawn(http::connection(Arc::clone(&stub), stream, peer)),
                // Out of file descriptors, or a peer that is gone already: neither is a reason to stop.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    tokio::select! { () = accepting => {}, () = shutdown => {} }
    stub.stop.cancel();
    stub.tracker.close();
    stub.tracker.wait().await;
}

/// One running stub.
struct Stub {
    args: StubAgentArgs,
    address: SocketAddr,
    world: Mutex<World>,
    log: Log,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Stub {
    fn new(args: StubAgentArgs, address: SocketAddr) -> anyhow::Result<Arc<Self>> {
        let log = Log::open(args.log.as_deref())?;
        Ok(Arc::new(Self {
            args,
            address,
            world: Mutex::default(),
            log,
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// What the stub knows; never held across an await.
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs something beside, until it ends or the stub stops.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            tokio::select! { () = work => {}, () = stop.cancelled() => {} }
        });
    }
}
