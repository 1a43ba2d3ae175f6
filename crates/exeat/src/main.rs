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

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cli::main(std::env::args_os().collect()) as u8)
}
