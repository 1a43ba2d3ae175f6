//! `exeat demo`: the whole of it on this machine, in a minute.

use clap::Args;

use crate::failure::{Exit, Failure, Problem};
use crate::show::Show;

/// See the whole of it on this machine in a minute
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat demo
  exeat demo --yes --exit --json")]
pub(crate) struct DemoArgs {
    /// Approve without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Stop when it is through, instead of keeping the server up to look around
    #[arg(long)]
    pub(crate) exit: bool,
}

/// Runs the demo.
pub(crate) async fn run(_args: DemoArgs, _show: &Show) -> Result<Exit, Failure> {
    Err(Failure::of(Exit::Usage, Problem::new("not_built", "demo isn't built into this binary yet")))
}
