//! What a registry entry says, as the connector needs it.

use exeat_core::registry::AgentEntry;
use ipnet::IpNet;

use crate::target::{BadUrl, Entry, Origin, Plaintext, Target};

/// An entry whose posture can't be dialled by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// Its URL.
    #[error("url: {0}")]
    Url(BadUrl),
    /// Its origin isn't that of its URL.
    #[error("the origin isn't that of the URL")]
    Origin,
    /// One of its further origins.
    #[error("allow_origins: {origin:?}: {why}")]
    AllowOrigin {
        /// Which, cut to 80 characters.
        origin: String,
        /// What is wrong with it.
        why: BadUrl,
    },
    /// One of its networks.
    #[error("allow_cidrs: {0:?} is not a network like 10.0.0.0/8")]
    Network(String),
}

/// The origin of a URL that is to be registered: `scheme://host[:port]`, as [`AgentEntry::origin`] holds it.
///
/// # Errors
/// Why the URL could never be dialled.
pub fn origin_of(url: &str) -> Result<Origin, BadUrl> {
    url.parse::<Target>().map(|t| t.origin().clone())
}

/// What `agent` lets its hops dial. Also the check for the day it is registered, together with
/// [`Platform::admits`](crate::target::Platform::admits).
///
/// # Errors
/// The first member that doesn't parse.
pub fn entry_of(agent: &AgentEntry) -> Result<Entry, BadEntry> {
    let posture = &agent.posture;
    let registered = origin_of(&posture.url).map_err(BadEntry::Url)?;
    if agent.origin.parse::<Origin>().ok().as_ref() != Some(&registered) {
        return Err(BadEntry::Origin);
    }
    let cut = |s: &String| s.chars().take(80).collect::<String>();
    let origins = posture
        .allow_origins
        .iter()
        .map(|o| o.parse().map_err(|why| BadEntry::AllowOrigin { origin: cut(o), why }))
        .collect::<Result<_, _>>()?;
    let networks = posture
        .allow_cidrs
        .iter()
        .map(|c| c.parse::<IpNet>().map_err(|_| BadEntry::Network(cut(c))))
        .collect::<Result<_, _>>()?;
    let plaintext = if posture.plaintext { Plaintext::Allowed } else { Plaintext::Refused };
    Ok(Entry { registered, origins, plaintext, networks })
}
