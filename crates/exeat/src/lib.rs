//! The `exeat` command: everything a person or a script does with Exeat starts here.
//!
//! Promises: stdout carries the result and nothing else; stderr carries progress and one line per error
//! (`error: CODE: detail; next`); the exit code says how it ended (0 done, 1 the task ended badly, 2 usage,
//! 3 refused or unreachable server, 4 verification failed, 5 waiting ended before the task did).
//!
//! Never: talks to anything but our own API, except in `serve` and `demo`, which are the gateway itself.

mod cli;
mod client;
mod clock;
mod config;
mod demo;
mod failure;
mod gateway;
mod serve;
mod show;
mod stub_agent;
mod worker;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use exeat_core::ports::{Archive, Clock, Store};
use exeat_core::registry::OrgDefaults;

/// Runs one command line, its own name first.
#[must_use]
pub fn run(line: Vec<OsString>) -> ExitCode {
    ExitCode::from(cli::main(line) as u8)
}

/// What is wrong with the text of a configuration file, if anything is.
///
/// # Errors
/// One sentence with the place.
pub fn check_configuration(text: &str) -> Result<(), String> {
    config::check(text).map_err(|e| e.to_string())
}

/// Serves a data folder over a record of the caller's own instead of its file: the benchmark's baseline. What is in the
/// record is gone when it ends.
///
/// # Errors
/// Why it doesn't start, in one sentence.
pub async fn serve_over<R: Store + Archive + 'static>(
    data: &Path,
    listen: SocketAddr,
    make: impl FnOnce(Arc<dyn Clock>, OrgDefaults) -> R + Send + 'static,
) -> Result<(), String> {
    use gateway::wire_up::{Place, open_over};
    let place = Place { data, config: None, listen: Some(listen) };
    let own = Box::new(move |clock: Arc<dyn Clock>, defaults: OrgDefaults| {
        Arc::new(make(clock, defaults)) as Arc<_>
    });
    let gateway = open_over(&place, Some(own)).await.map_err(|e| e.to_string())?;
    let show = show::Show::new(show::Format::Text, show::Volume::Quiet);
    serve::served(gateway, data, &show).await.map(drop).map_err(|_| "it stopped".to_owned())
}
