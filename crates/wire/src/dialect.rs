//! Which protocol a peer's interface speaks, and which of them we can.

use std::fmt;
use std::str::FromStr;

/// A way of writing requests. What comes back is recognised by its shape instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// A2A 1.x: `SendMessage`, parts told apart by their member, `ROLE_USER`.
    V1_0,
    /// A2A 0.3 and 0.2: `message/send`, parts told apart by `kind`, `user`.
    V0_3,
}

impl Dialect {
    /// The value of the `A2A-Version` header, and the version as the record shows it.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::V1_0 => "1.0",
            Self::V0_3 => "0.3",
        }
    }

    /// The other one: worth one try when a peer says that it knows no such method or version, which proves
    /// that nothing ran, and the entry pins no version.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V1_0 => Self::V0_3,
            Self::V0_3 => Self::V1_0,
        }
    }

    /// The dialect that speaks a version as cards write it (`1.0`, `1.0.0`, `v0.3`, `0.2.6`), if any does.
    /// An absent claim is read as 0.3 (A2A 1.0 §3.6.2).
    #[must_use]
    pub fn of_version(version: &str) -> Option<Self> {
        match claim(version) {
            Claim::None | Claim::Is(0, 2 | 3) => Some(Self::V0_3),
            Claim::Is(1, _) => Some(Self::V1_0),
            Claim::Is(..) | Claim::Odd => None,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

/// How calls travel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC 2.0 over one POST URL: what we speak.
    JsonRpc,
    /// REST.
    HttpJson,
    /// gRPC.
    Grpc,
    /// Something else, as the card names it.
    Other(String),
}

impl Binding {
    /// Reads a card's name of a binding, whatever its case and hyphens.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let plain: String =
            name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        match plain.as_str() {
            "jsonrpc" | "jsonrpc20" => Self::JsonRpc,
            "httpjson" | "rest" => Self::HttpJson,
            "grpc" => Self::Grpc,
            _ => Self::Other(name.to_owned()),
        }
    }

    /// As A2A 1.0 spells it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One way in that a card offers. Nothing in it has been checked against the registry: whoever dials
/// `url` must hold exactly that string to the entry's origins first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Where, as the card writes it.
    pub url: String,
    /// How calls travel.
    pub binding: Binding,
    /// The version as the card writes it; empty if it makes no claim.
    pub version: String,
    /// Which dialect of ours speaks it, if one does.
    pub dialect: Option<Dialect>,
    /// The peer's own tenant, to be echoed in every request to this interface (A2A 1.0 §8.3.2). Never our org.
    pub tenant: Option<String>,
}

impl Interface {
    pub(crate) fn new(url: &str, binding: Binding, version: &str, tenant: Option<&str>) -> Self {
        Self {
            url: url.to_owned(),
            binding,
            version: version.to_owned(),
            dialect: Dialect::of_version(version),
            tenant: tenant.map(str::to_owned),
        }
    }

    /// Smaller is tried first: 1.0, other 1.x, 0.3, 0.2, no claim, and then what we can't speak.
    pub(crate) fn rank(&self) -> u8 {
        match claim(&self.version) {
            Claim::Is(1, 0) => 0,
            Claim::Is(1, _) => 1,
            Claim::Is(0, 3) => 2,
            Claim::Is(0, 2) => 3,
            Claim::None => 4,
            Claim::Is(..) | Claim::Odd => 5,
        }
    }

    pub(crate) fn minor(&self) -> Option<(u32, u32)> {
        if let Claim::Is(major, minor) = claim(&self.version) { Some((major, minor)) } else { None }
    }
}

/// Which version the registry entry allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ProtocolPin {
    /// What the card prefers among what we speak.
    #[default]
    Auto,
    /// 1.0 only.
    V1_0,
    /// 0.3 only.
    V0_3,
    /// 0.2 only.
    V0_2,
    /// 0.1: known as a word, spoken by nothing here, so it never finds an interface.
    V0_1,
}

impl ProtocolPin {
    /// As the registry writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::V1_0 => "1.0",
            Self::V0_3 => "0.3",
            Self::V0_2 => "0.2",
            Self::V0_1 => "0.1",
        }
    }

    /// The dialect that an interface must be spoken to in, if the pin allows that interface at all. An
    /// interface without a claim takes the pin's word.
    pub(crate) fn dialect(self, interface: &Interface) -> Option<Dialect> {
        let claimed = interface.minor();
        match (self, claimed) {
            (Self::Auto, _) => interface.dialect,
            (Self::V1_0, Some((1, _)) | None) if self.takes(interface) => Some(Dialect::V1_0),
            (Self::V0_3, Some((0, 3)) | None) | (Self::V0_2, Some((0, 2)) | None)
                if self.takes(interface) =>
            {
                Some(Dialect::V0_3)
            }
            _ => None,
        }
    }

    fn takes(self, interface: &Interface) -> bool {
        interface.minor().is_some() || interface.version.is_empty()
    }
}

impl fmt::Display for ProtocolPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a protocol that an entry can name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol must be auto, 1.0, 0.3, 0.2 or 0.1")]
pub struct UnknownPin;

impl FromStr for ProtocolPin {
    type Err = UnknownPin;
    fn from_str(s: &str) -> Result<Self, UnknownPin> {
        [Self::Auto, Self::V1_0, Self::V0_3, Self::V0_2, Self::V0_1]
            .into_iter()
            .find(|p| p.as_str() == s)
            .ok_or(UnknownPin)
    }
}

enum Claim {
    None,
    Is(u32, u32),
    Odd,
}

/// Cards write `1.0`, `1.0.0`, `v1`, `0.3.0`: the first two numbers count (A2A 1.0 §3.6).
fn claim(version: &str) -> Claim {
    let version = version.trim();
    if version.is_empty() {
        return Claim::None;
    }
    let mut numbers = version.trim_start_matches(['v', 'V']).split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Claim::Is(major, minor),
        (Some(Ok(major)), None) => Claim::Is(major, 0),
        _ => Claim::Odd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_cards_write_them() {
        for (given, dialect) in [
            ("1.0", Some(Dialect::V1_0)),
            ("1.0.0", Some(Dialect::V1_0)),
            ("1", Some(Dialect::V1_0)),
            ("v1.0", Some(Dialect::V1_0)),
            ("1.7", Some(Dialect::V1_0)),
            ("0.3", Some(Dialect::V0_3)),
            ("0.3.0", Some(Dialect::V0_3)),
            ("0.2.6", Some(Dialect::V0_3)),
            ("", Some(Dialect::V0_3)),
            ("0.1", None),
            ("0.9", None),
            ("2.0", None),
            ("latest", None),
            ("1.x", None),
        ] {
            assert_eq!(Dialect::of_version(given), dialect, "{given}");
        }
    }

    #[test]
    fn bindings_are_read_whatever_their_spelling() {
        assert_eq!(Binding::parse("jsonrpc"), Binding::JsonRpc);
        assert_eq!(Binding::parse("JSON-RPC"), Binding::JsonRpc);
        assert_eq!(Binding::parse("HTTP+JSON"), Binding::HttpJson);
        assert_eq!(Binding::parse("X-CUSTOM"), Binding::Other("X-CUSTOM".into()));
    }

    #[test]
    fn pins_read_back_as_they_print() {
        for pin in
            [ProtocolPin::Auto, ProtocolPin::V1_0, ProtocolPin::V0_3, ProtocolPin::V0_2, ProtocolPin::V0_1]
        {
            assert_eq!(pin.to_string().parse(), Ok(pin));
        }
        assert_eq!("1".parse::<ProtocolPin>(), Err(UnknownPin));
    }
}
