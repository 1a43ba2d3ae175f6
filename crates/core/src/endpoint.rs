//! Where a hop goes. Endpoints are names, never addresses: only `egress` turns a name into one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{AgentKey, Malformed, RoleName, TeamName};

/// `role:NAME`, `team:NAME` (internal) or `agent:KEY` (foreign). An unknown kind doesn't parse.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Endpoint {
    /// A role that workers play.
    Role(RoleName),
    /// A set of roles; any of its workers may take the work.
    Team(TeamName),
    /// A foreign agent of the registry.
    Agent(AgentKey),
}

impl FromStr for Endpoint {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        match s.split_once(':') {
            Some(("role", name)) => name.parse().map(Self::Role),
            Some(("team", name)) => name.parse().map(Self::Team),
            Some(("agent", key)) => key.parse().map(Self::Agent),
            _ => Err(Malformed::new("endpoint", "role:NAME, team:NAME or agent:KEY", s)),
        }
    }
}

impl TryFrom<String> for Endpoint {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        s.parse()
    }
}

impl From<Endpoint> for String {
    fn from(e: Endpoint) -> String {
        e.to_string()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(n) => write!(f, "role:{n}"),
            Self::Team(n) => write!(f, "team:{n}"),
            Self::Agent(k) => write!(f, "agent:{k}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_kind_and_a_name_and_never_a_url() {
        for ok in ["role:writer", "team:ops", "agent:auditor"] {
            assert_eq!(ok.parse::<Endpoint>().map(|e| e.to_string()), Ok(ok.to_owned()));
        }
        for bad in ["", "writer", "role:", "agent:https://x", "coordinator", "queue:x", "agent:A", "role: a"]
        {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }
}
