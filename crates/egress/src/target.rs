//! From the text of a URL to a [`Target`], or a refusal, before any lookup.
//!
//! There is one parser (the WHATWG one of the `url` crate) and what it would silently repair is refused
//! first: control characters, backslashes, userinfo, percent signs in the host, odd spellings of IPv4. What
//! comes out is what is checked, what is resolved and what is dialled. Origins are compared whole: scheme,
//! host and port, never by suffix or prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::uri::PathAndQuery;
use ipnet::IpNet;
use url::Url;

use crate::address::Addresses;

/// The longest URL that is looked at, in bytes.
const LONGEST: usize = 2048;

/// How the peer is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// TLS.
    Https,
    /// In clear, only where the entry says so.
    Http,
}

impl Scheme {
    /// As in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
    const fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// Who is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A domain name: lower case, ASCII (IDNA), no trailing dot.
    Name(String),
    /// A literal address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(n) => f.write_str(n),
            Self::Address(IpAddr::V4(a)) => write!(f, "{a}"),
            Self::Address(IpAddr::V6(a)) => write!(f, "[{a}]"),
        }
    }
}

/// Scheme, host and port (RFC 6454): the unit of trust. As text `https://peer.test` or, with a port that
/// isn't the scheme's own, `https://peer.test:8443`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    scheme: Scheme,
    host: Host,
    port: u16,
}

impl Origin {
    /// How the peer is spoken to.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }
    /// Who is spoken to.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }
    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
    /// What the `Host` header says (RFC 9110 §7.2).
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

impl FromStr for Origin {
    type Err = BadUrl;
    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let target: Target = text.parse()?;
        if target.path_and_query == "/" { Ok(target.origin) } else { Err(BadUrl::NotAnOrigin) }
    }
}

/// Where one request goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    origin: Origin,
    path_and_query: PathAndQuery,
}

/// Why a text isn't a URL that could be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Over 2048 bytes.
    #[error("the URL is longer than {LONGEST} bytes")]
    TooLong,
    /// Whitespace, control characters or a backslash: parsers disagree about these.
    #[error("the URL holds whitespace, a control character or a backslash")]
    OddCharacter,
    /// Neither `https://…` nor `http://…`.
    #[error("the URL must start with https:// (or http:// for an entry that is marked plaintext)")]
    Scheme,
    /// `user@` or `user:password@`.
    #[error("the URL has a user part before the host; credentials are handles, never part of a URL")]
    Userinfo,
    /// `#…`.
    #[error("the URL has a fragment")]
    Fragment,
    /// A host that isn't a name or an address, has a zone id, or spells an IPv4 address in another way than
    /// four decimal numbers.
    #[error("the host is not a plain domain name or address")]
    Host,
    /// Port 0, or none at all after the colon.
    #[error("the port is not usable")]
    Port,
    /// The rest doesn't parse.
    #[error("the URL does not parse")]
    Malformed,
    /// An origin was asked for, and a path or query came along.
    #[error("an origin has no path and no query")]
    NotAnOrigin,
}

impl Target {
    /// Where it goes.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }
    /// Path and query, as they are sent.
    #[must_use]
    pub const fn path_and_query(&self) -> &PathAndQuery {
        &self.path_and_query
    }
    /// The same origin with another path.
    ///
    /// # Errors
    /// [`BadUrl`] if the path isn't one.
    pub fn with_path(&self, path: &str) -> Result<Self, BadUrl> {
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(BadUrl::Malformed);
        }
        format!("{}{path}", self.origin).parse()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path_and_query)
    }
}

impl FromStr for Target {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let raw = Raw::of(text)?;
        let url = Url::parse(text).map_err(|_| BadUrl::Malformed)?;
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return Err(BadUrl::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadUrl::Userinfo);
        }
        let host = match url.host().ok_or(BadUrl::Host)? {
            url::Host::Domain(name) => Host::Name(raw.agrees(name_of(name)?)?),
            url::Host::Ipv4(a) if raw.host == a.to_string() => Host::Address(a.into()),
            url::Host::Ipv4(_) => return Err(BadUrl::Host),
            url::Host::Ipv6(a) => Host::Address(a.into()),
        };
        let port = url.port_or_known_default().filter(|p| *p != 0).ok_or(BadUrl::Port)?;
        let path = url.query().map_or_else(|| url.path().to_owned(), |q| format!("{}?{q}", url.path()));
        let path_and_query = path.parse().map_err(|_| BadUrl::Malformed)?;
        Ok(Self { origin: Origin { scheme, host, port }, path_and_query })
    }
}

/// What stands between `://` and the path, before any parser repairs it.
struct Raw<'a> {
    /// Without port and without one trailing dot.
    host: &'a str,
}

impl<'a> Raw<'a> {
    fn of(text: &'a str) -> Result<Self, BadUrl> {
        if text.len() > LONGEST {
            return Err(BadUrl::TooLong);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(BadUrl::OddCharacter);
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl::Scheme)?;
        if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
            return Err(BadUrl::Scheme);
        }
        if text.contains('#') {
            return Err(BadUrl::Fragment);
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(BadUrl::Userinfo);
        }
        if authority.contains('%') {
            return Err(BadUrl::Host);
        }
        let host = if authority.starts_with('[') {
            authority
        } else {
            let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
            if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
                return Err(BadUrl::Port);
            }
            host
        };
        Ok(Self { host: host.strip_suffix('.').unwrap_or(host) })
    }

    /// An ASCII name is what it says; only others go through IDNA (`https:///x` has the parser look for a
    /// host where none is written).
    fn agrees(&self, name: String) -> Result<String, BadUrl> {
        if self.host.is_ascii() && !self.host.eq_ignore_ascii_case(&name) {
            Err(BadUrl::Host)
        } else {
            Ok(name)
        }
    }
}

/// A domain name as it is compared and asked: the parser's lower-case ASCII, less one trailing dot, within
/// the lengths of RFC 1035 §2.3.4.
fn name_of(parsed: &str) -> Result<String, BadUrl> {
    let name = parsed.strip_suffix('.').unwrap_or(parsed);
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    if name.len() <= 253 && name.split('.').all(label) { Ok(name.to_owned()) } else { Err(BadUrl::Host) }
}

/// Whether an entry's agent may be spoken to in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// TLS only, on the platform's ports.
    Refused,
    /// Plain HTTP as well, on any port.
    Allowed,
}

/// A set of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// `["*"]`.
    Any,
    /// These, compared whole.
    Listed(Vec<Origin>),
}

impl Origins {
    /// From configuration: `["*"]`, or a list of origins.
    ///
    /// # Errors
    /// The first text that isn't an origin, and why. `*` beside others isn't one.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, (String, BadUrl)> {
        if let [one] = texts
            && one.as_ref() == "*"
        {
            return Ok(Self::Any);
        }
        texts
            .iter()
            .map(|t| t.as_ref().parse().map_err(|e| (t.as_ref().to_owned(), e)))
            .collect::<Result<_, _>>()
            .map(Self::Listed)
    }
    /// Whether `origin` is among them.
    #[must_use]
    pub fn holds(&self, origin: &Origin) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(origins) => origins.contains(origin),
        }
    }
}

/// What the platform lets anyone dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Origins that entries may name.
    pub origins: Origins,
    /// Ports of TLS targets.
    pub ports: Vec<u16>,
    /// Addresses.
    pub addresses: Addresses,
}

impl Default for Platform {
    fn default() -> Self {
        Self { origins: Origins::Any, ports: vec![443], addresses: Addresses::default() }
    }
}

/// What one entry of the registry lets its hops dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The origin of its registered URL.
    pub registered: Origin,
    /// Further origins that its card may choose.
    pub origins: Vec<Origin>,
    /// Whether it may be spoken to in clear.
    pub plaintext: Plaintext,
    /// Networks that are let through though they aren't public, if the platform lists them too.
    pub networks: Vec<IpNet>,
}

/// A target outside what the entry and the platform allow. Nothing was looked up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetRefused {
    /// Not a URL that could be dialled.
    #[error("{0}")]
    Url(#[from] BadUrl),
    /// `http://` though the entry isn't marked plaintext.
    #[error("{0} is plain HTTP and the entry is not marked plaintext")]
    Plaintext(Origin),
    /// A port that the platform doesn't list.
    #[error("the port of {0} is not among the allowed ports")]
    Port(Origin),
    /// An origin that the entry doesn't name.
    #[error("{0} is neither the registered origin nor in the entry's allow list")]
    Entry(Origin),
    /// An origin that the platform doesn't list.
    #[error("{0} is not among the origins that the platform allows")]
    Platform(Origin),
}

impl Platform {
    /// Parses `url` and clears it for `entry`: pure, before any lookup.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn clear(&self, entry: &Entry, url: &str) -> Result<Target, TargetRefused> {
        let target: Target = url.parse()?;
        self.check(entry, &target)?;
        Ok(target)
    }

    /// Whether `target` is one that `entry` and the platform allow.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, entry: &Entry, target: &Target) -> Result<(), TargetRefused> {
        let origin = target.origin();
        if *origin != entry.registered && !entry.origins.contains(origin) {
            return Err(TargetRefused::Entry(origin.clone()));
        }
        self.check_origin(entry, origin)
    }

    /// Whether everything that `entry` names is within the platform's bounds; for the day it is registered.
    ///
    /// # Errors
    /// The first origin that isn't, and why.
    pub fn admits(&self, entry: &Entry) -> Result<(), TargetRefused> {
        std::iter::once(&entry.registered)
            .chain(&entry.origins)
            .try_for_each(|origin| self.check_origin(entry, origin))
    }

    fn check_origin(&self, entry: &Entry, origin: &Origin) -> Result<(), TargetRefused> {
        match (origin.scheme, entry.plaintext) {
            (Scheme::Http, Plaintext::Refused) => return Err(TargetRefused::Plaintext(origin.clone())),
            (Scheme::Https, Plaintext::Refused) if !self.ports.contains(&origin.port) => {
                return Err(TargetRefused::Port(origin.clone()));
            }
            (_, Plaintext::Allowed) | (Scheme::Https, Plaintext::Refused) => {}
        }
        if self.origins.holds(origin) { Ok(()) } else { Err(TargetRefused::Platform(origin.clone())) }
    }
}

#[cfg(test)]
mod tests;
