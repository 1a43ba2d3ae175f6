//! Runs the binary.

use std::process::{Command, Stdio};

use serde_json::Value;

/// How a run ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The one JSON object on stdout.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.matches('\n').count(), 1, "one line: {self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}

/// The command against this server, in an empty directory, with nothing of ours in its environment.
pub(crate) fn command(url: &str, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exeat"));
    command.args(line).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("EXEAT_URL", url).env("EXEAT_KEY", "exk_test_secret").current_dir(std::env::temp_dir());
    command.stdin(Stdio::null());
    command
}

pub(crate) fn exeat(url: &str, line: &[&str]) -> Ran {
    ran(&mut command(url, line))
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
