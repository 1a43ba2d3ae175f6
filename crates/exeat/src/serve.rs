//! `exeat serve`: the gateway.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::failure::{Exit, Failure, Problem};
use crate::show::Show;

/// Start the gateway
#[derive(Debug, Args)]
#[command(after_help = "\
The first start of an empty directory makes the org `main`, its keys (admin.key,
approver.key) and exeat.toml. When it is ready, it prints `ready http://…` on stdout.

Examples:
  exeat serve --data ./exeat-data
  exeat serve --data /var/lib/exeat --listen 127.0.0.1:0 --config /etc/exeat.toml")]
pub(crate) struct ServeArgs {
    /// The directory of its database, keys and configuration
    #[arg(long, value_name = "DIR", env = "EXEAT_DATA")]
    pub(crate) data: PathBuf,
    /// Where to listen; 127.0.0.1:7700 unless the configuration says otherwise
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// The configuration; DIR/exeat.toml if omitted
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Runs the gateway until it is told to stop.
pub(crate) async fn run(_args: ServeArgs, _show: &Show) -> Result<Exit, Failure> {
    Err(Failure::of(Exit::Usage, Problem::new("not_built", "serve isn't built into this binary yet")))
}
