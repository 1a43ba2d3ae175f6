//! `exeat serve`: the gateway.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tracing_subscriber::EnvFilter;

use crate::cli;
use crate::config::{Log, LogFormat};
use crate::failure::{Exit, Failure, Problem};
use crate::gateway::wire_up::{self, Gateway, NotStarted, Place};
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

/// How long a stopping gateway waits for what is under way.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the gateway until it is told to stop.
pub(crate) async fn run(args: ServeArgs, show: &Show) -> Result<Exit, Failure> {
    let place = Place { data: &args.data, config: args.config.as_deref(), listen: args.listen };
    let gateway = wire_up::open(&place).await.map_err(|e| refused(&e))?;
    log_to_stderr(&gateway.config.log);
    served(gateway, &args.data, show).await
}

/// Serves a gateway that is open until it is told to stop.
pub(crate) async fn served(gateway: Gateway, data: &Path, show: &Show) -> Result<Exit, Failure> {
    let url = format!("http://{}", gateway.address);
    let stop = cli::told_to_stop();
    greet(data, &gateway, show);
    exeat_server::start(&gateway.app);
    gateway.app.runtime.first_sweep().await;
    // Nobody may be listening for it; that is no reason not to serve.
    let _ = show.text(&format!("ready {url}"));
    exeat_server::serve(gateway.listener, Arc::clone(&gateway.app), stop).await;
    gateway.app.runtime.stop(PATIENCE).await;
    if let Some(file) = gateway.file {
        file.shutdown().await;
    }
    Ok(Exit::Done)
}

fn refused(e: &NotStarted) -> Failure {
    Failure::of(Exit::Refused, Problem::new(e.code(), e.to_string()).next(e.next()))
}

/// What a person should know about this start; on stderr, so that stdout is for programs.
fn greet(data: &Path, gateway: &Gateway, show: &Show) {
    if gateway.is_first {
        let shown = data.display();
        show.progress(&format!("first start: made {shown}/exeat.toml, keys/, admin.key and approver.key"));
    }
    if std::fs::metadata(data).is_ok_and(|m| m.permissions().mode() & 0o020 != 0) {
        let shown = data.display();
        show.progress(&format!(
            "the group of {shown} may write to it, and so replace the record: chmod g-w {shown}"
        ));
    }
    if gateway.config.switches.single_operator {
        show.progress("single_operator is on: one person signs alone for registry, policy and egress mode");
    }
    if !gateway.config.is_loopback() && gateway.config.public_url.starts_with("http://") {
        show.progress("callbacks will come over plain http: put TLS in front and set server.public_url");
    }
}

/// Standard error, whether or not anybody reads it: a log that can't be written, because its reader has gone or the disk is
/// full, must not stop the work. The subscriber would panic about it.
struct Unheard;

impl std::io::Write for Unheard {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        let _ = std::io::stderr().flush();
        Ok(())
    }
}

fn log_to_stderr(log: &Log) {
    use std::io::IsTerminal as _;
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    // Codes for colours are for a terminal; in a file they are noise.
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Unheard).with_ansi(colours);
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
}
