//! `exeat stub-agent`: a foreign agent to try things with.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::failure::{Exit, Failure, Problem};
use crate::show::Show;

/// A foreign agent to try things with
#[derive(Debug, Args)]
#[command(after_help = "\
It does what the first line of a message says after `!`, e.g. `!later 2s; push dup 3`.

Example:
  exeat stub-agent --listen 127.0.0.1:9000 --protocol both --log seen.jsonl")]
pub(crate) struct StubAgentArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Which A2A it speaks
    #[arg(long, value_name = "VERSION", default_value = "both", value_parser = ["1.0", "0.3", "both"])]
    pub(crate) protocol: String,
    /// Does it offer callbacks?
    #[arg(long, value_name = "PUSH", default_value = "on", value_parser = ["on", "off"])]
    pub(crate) push: String,
    /// The bearer token that callers must send
    #[arg(long, value_name = "BEARER")]
    pub(crate) token: Option<String>,
    /// Where each connection and request is written, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

/// Runs the stub agent until it is told to stop.
pub(crate) async fn run(_args: StubAgentArgs, _show: &Show) -> Result<Exit, Failure> {
    Err(Failure::of(Exit::Usage, Problem::new("not_built", "stub-agent isn't built into this binary yet")))
}
