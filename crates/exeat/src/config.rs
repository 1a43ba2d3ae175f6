//! The configuration: defaults, then the file, then the environment, then flags; parsed once, or refused.
//!
//! Promise: nothing runs on a configuration that wasn't read whole. An unknown key, a value of the wrong
//! kind and an unsafe combination are refused by name and place, with what to do.

mod checks;
mod layers;
mod shape;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exeat_core::label::{Label, Levels};
use exeat_core::registry::Bounds;
use exeat_server::app::Switches;

use layers::{Layers, Origin, Origins};
pub(crate) use shape::{Egress, Ledger, Log, LogFormat};

/// Every setting with its default; also what a first start writes down.
pub(crate) const DEFAULTS: &str = include_str!("config/defaults.toml");

/// Why a configuration isn't one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadConfig {
    /// The file can't be read.
    #[error("{}: {why}", path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    /// It isn't TOML.
    #[error("{source_name}: {why}")]
    Syntax { source_name: String, why: String },
    /// A key that doesn't exist.
    #[error("{origin}unknown key `{key}`")]
    UnknownKey { key: String, origin: Origin },
    /// A value that the setting doesn't take.
    #[error("{origin}`{key}`: {why}")]
    BadValue { key: String, origin: Origin, why: String },
    /// Settings that don't go together.
    #[error("{origin}{why}")]
    Unsafe { origin: Origin, why: &'static str },
}

/// The configuration, read and checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) switches: Switches,
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: String,
    pub(crate) store: PathBuf,
    /// Tasks that may be open at once.
    pub(crate) open_tasks: u64,
    /// Room on the disk that is kept for what is under way.
    pub(crate) disk_reserve_bytes: u64,
    pub(crate) levels: Levels,
    pub(crate) default_label: Label,
    pub(crate) bounds: Arc<Bounds>,
    pub(crate) callback_body_bytes: usize,
    pub(crate) callback_per_minute: u32,
    pub(crate) egress: Egress,
    pub(crate) grants: Vec<String>,
    pub(crate) ledger: Ledger,
    pub(crate) log: Log,
    origins: Origins,
}

impl Config {
    /// Reads the configuration of a data folder.
    pub(crate) fn read(
        data: &Path,
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
        listen: Option<SocketAddr>,
    ) -> Result<Self, BadConfig> {
        let own = data.join("exeat.toml");
        let path = file.unwrap_or(&own);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.is_none() => String::new(),
            Err(why) => return Err(BadConfig::Unreadable { path: path.to_owned(), why }),
        };
        Self::of(data, &path.display().to_string(), &text, environment, listen)
    }

    /// The pure part: text and environment in, configuration out.
    fn of(
        data: &Path,
        name: &str,
        text: &str,
        environment: &BTreeMap<String, String>,
        listen: Option<SocketAddr>,
    ) -> Result<Self, BadConfig> {
        let mut layers = Layers::of_defaults()?;
        layers.file(name, text)?;
        layers.environment(environment)?;
        let (raw, origins) = layers.read()?;
        checks::checked(data, raw, origins, listen)
    }

    /// What is wrong with a value that only its user can judge.
    pub(crate) fn bad_value(&self, key: &str, why: String) -> BadConfig {
        self.origins.bad_value(key, why)
    }

    /// Is the listener reached from this machine alone?
    pub(crate) fn is_loopback(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}

/// Is this the text of a configuration file, on its own?
pub(crate) fn check(text: &str) -> Result<(), BadConfig> {
    Config::of(Path::new("."), "exeat.toml", text, &BTreeMap::new(), None).map(drop)
}

/// What a first start writes down: every default as a comment, and what it switches on.
pub(crate) fn first_file(listen: SocketAddr) -> String {
    let mut text =
        String::from("# Written by the first start. What isn't set here has the default shown below.\n\n");
    text.push_str(
        "bus_enabled = true\ncoordinator_enabled = true\nharness_enabled = true\na2a_egress_enabled = true\n",
    );
    if listen.ip().is_loopback() {
        text.push_str("single_operator = true   # one person counts as two; refused on other listeners\n");
        text.push_str(
            "\n[egress]\nallow_cidrs = [\"127.0.0.0/8\", \"::1/128\"]   # for agents on this machine\n",
        );
        text.push_str("\n[credentials]\ngrants = [\"env:*\", \"file:*\"]\n");
    }
    text.push_str("\n# ---- every setting with its default ----\n");
    for line in DEFAULTS.lines() {
        text.push_str(if line.is_empty() { "#" } else { "# " });
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use exeat_core::registry::EgressMode;
    use exeat_core::time::Span;

    use super::*;

    fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, BadConfig> {
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Config::of(Path::new("/data"), "exeat.toml", text, &env, None)
    }

    #[test]
    fn the_defaults_and_what_a_first_start_writes_read_back() {
        let dark = read("", &[]).unwrap();
        assert_eq!(dark.switches.egress_cap, EgressMode::Off);
        assert!(!dark.switches.coordinator);
        let first = read(&first_file(dark.listen), &[]).unwrap();
        assert_eq!(first.switches.egress_cap, EgressMode::On);
        assert!(first.switches.single_operator && first.switches.harness);
        let outside = first_file("0.0.0.0:7700".parse().unwrap());
        assert!(!read(&outside, &[]).unwrap().switches.single_operator);
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let c = read(
            "[hop]\npoll_first = \"1h\"",
            &[("EXEAT_HOP_POLL_FIRST", "2s"), ("EXEAT_EGRESS_PORTS", "443, 8443")],
        );
        let c = c.unwrap();
        assert_eq!(c.bounds.poll_first, Span::of_secs(2));
        assert_eq!(c.egress.ports, [443, 8443]);
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        type Environment = &'static [(&'static str, &'static str)];
        let cases: [(&str, Environment, &str); 20] = [
            ("a2a_egress_enabled = true", &[], "a2a_egress_enabled needs bus_enabled"),
            ("single_operator = true\n[server]\nlisten = \"0.0.0.0:1\"", &[], "loopback"),
            ("nope = 1", &[], "unknown key `nope`"),
            ("[hop]\nnope = 1", &[], "unknown key `hop.nope`"),
            ("[hop]\ndeadline = 5", &[], "`hop.deadline`: expected string"),
            ("[hop]\ndeadline = \"5 weeks\"", &[], "duration"),
            ("[hop\n", &[], "exeat.toml:1"),
            ("", &[("EXEAT_BUS_ENABLED", "maybe")], "EXEAT_BUS_ENABLED"),
            ("", &[("EXEAT_HOP_DEADLNE", "5s")], "EXEAT_HOP_DEADLNE"),
            ("", &[("EXEAT_A2A_EGRES_ENABLED", "false")], "EXEAT_A2A_EGRES_ENABLED"),
            ("", &[("EXEAT_SINGLE_OPERATR", "true")], "EXEAT_SINGLE_OPERATR"),
            ("", &[("EXEAT_EGRES_PORTS", "1")], "EXEAT_EGRES_PORTS"),
            ("", &[("EXEAT_EGRESS_PROXY", "zz")], "EXEAT_EGRESS_PROXY"),
            ("", &[("EXEAT_HOP_POLL_FIRST", "0s")], "EXEAT_HOP_POLL_FIRST"),
            ("[log]\nlevel = \"zzz\"\n", &[], "log.level"),
            ("[work]\nlease = \"0s\"\n", &[], "work.lease"),
            ("[server]\npublic_url = \"zzz\"\n", &[], "server.public_url"),
            ("[store]\nurl = \"postgres://x\"", &[], "store.url"),
            ("[labels]\ndefault = \"secret\"", &[], "labels.default"),
            ("[server]\nlisten = \"here\"", &[], "server.listen"),
        ];
        for (text, env, wants) in cases {
            let got = read(text, env).unwrap_err().to_string();
            assert!(got.contains(wants), "{text}: {got}");
        }
    }

    #[test]
    fn a_setting_that_is_refused_is_named_with_the_place_that_set_it() {
        let here = "# a comment\n\n[hop]\nsend_attempts = 3\ndeadline = \"soon\"\n";
        let wrong = "[log]\nlevel = \"zzz\"\n";
        type Environment = &'static [(&'static str, &'static str)];
        let cases: [(&str, Environment, &str); 8] = [
            (here, &[], "exeat.toml:5: `hop.deadline`: "),
            (here, &[("EXEAT_HOP_DEADLINE", "later")], "EXEAT_HOP_DEADLINE: `hop.deadline`: "),
            ("", &[("EXEAT_HOP_SEND_ATTEMPTS", "-1")], "EXEAT_HOP_SEND_ATTEMPTS: `hop.send_attempts`: "),
            ("log.format = \"xml\"", &[], "exeat.toml:1: `log.format`: "),
            (wrong, &[], "exeat.toml:2: `log.level`: "),
            ("\n[hop]\nnope = 1", &[], "exeat.toml:3: unknown key `hop.nope`"),
            ("", &[("EXEAT_HOP_DEADLNE", "5s")], "EXEAT_HOP_DEADLNE: unknown key"),
            ("a2a_egress_enabled = true", &[], "exeat.toml:1: a2a_egress_enabled needs"),
        ];
        for (text, env, begins) in cases {
            let got = read(text, env).unwrap_err().to_string();
            assert!(got.starts_with(begins), "{text}: {got}");
        }
        let outside = "0.0.0.0:1".parse().ok();
        let config = Config::of(Path::new("/d"), "exeat.toml", "", &BTreeMap::new(), outside).unwrap();
        let told = config.bad_value("server.listen", "no".to_owned()).to_string();
        assert_eq!(told, "--listen: `server.listen`: no");
    }
}
