//! The `exeat` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    exeat::run(std::env::args_os().collect())
}
