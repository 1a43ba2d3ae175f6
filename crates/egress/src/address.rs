//! Which addresses may be dialled: a pure classification from the special-purpose registries of
//! RFC 6890 (IANA IPv4 and IPv6), and the two lists that can lift or sharpen it.
//!
//! Promises: an address that isn't globally routable is refused unless the entry *and* the platform list
//! a network that holds it; some are refused whatever the lists say; a platform's deny wins over every
//! allow. It never looks at names, and never resolves one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Why an address isn't an ordinary public one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// `0.0.0.0/8` and `::`: "this host", which the kernel takes for loopback (RFC 1122).
    ThisNetwork,
    /// RFC 1918.
    Private,
    /// `100.64.0.0/10`, carrier-grade NAT (RFC 6598).
    Shared,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// `169.254.0.0/16`, `fe80::/10`: neighbours, and most clouds' metadata.
    LinkLocal,
    /// `192.0.0.0/24`, `2001::/23` less Teredo (RFC 6890 §2.2).
    ProtocolAssignment,
    /// Documentation networks (RFC 5737, RFC 3849, RFC 9637).
    Documentation,
    /// `198.18.0.0/15` (RFC 2544).
    Benchmarking,
    /// `192.88.99.0/24`, `2002::/16` (RFC 3056, RFC 7526).
    SixToFour,
    /// `2001::/32` (RFC 4380).
    Teredo,
    /// `64:ff9b::/96`, `64:ff9b:1::/48` (RFC 6052, RFC 8215).
    Nat64,
    /// `::ffff:0:0/96`, `::/96`: IPv6 text for an IPv4 address.
    Embedded4,
    /// `224.0.0.0/4`, `ff00::/8`.
    Multicast,
    /// `240.0.0.0/4`.
    Reserved,
    /// `255.255.255.255`.
    Broadcast,
    /// `fc00::/7` (RFC 4193).
    UniqueLocal,
    /// Other IPv6 outside `2000::/3`, which is all that is handed out as global unicast (RFC 4291 §2.4).
    NotGlobalUnicast,
    /// A metadata service at an address of its own (`fd00:ec2::254`, `100.100.100.200`, `168.63.129.16`).
    Metadata,
    /// Our own listener, database, bus or vault.
    Own,
    /// On the platform's deny list.
    Denied,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThisNetwork => "this network",
            Self::Private => "private",
            Self::Shared => "carrier-grade NAT",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::ProtocolAssignment => "IETF protocol assignment",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::SixToFour => "6to4",
            Self::Teredo => "Teredo",
            Self::Nat64 => "NAT64",
            Self::Embedded4 => "IPv4 written as IPv6",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
            Self::Broadcast => "broadcast",
            Self::UniqueLocal => "unique local",
            Self::NotGlobalUnicast => "not global unicast",
            Self::Metadata => "a cloud's metadata service",
            Self::Own => "an address of this installation",
            Self::Denied => "denied by the platform",
        })
    }
}

impl Block {
    /// Whether no list can lift it. Besides metadata and our own: what isn't a destination at all, and
    /// what only wraps an IPv4 address (list that one instead).
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::ThisNetwork
            | Self::LinkLocal
            | Self::SixToFour
            | Self::Teredo
            | Self::Nat64
            | Self::Embedded4
            | Self::Multicast
            | Self::Broadcast
            | Self::Metadata
            | Self::Own
            | Self::Denied => true,
            Self::Private
            | Self::Shared
            | Self::Loopback
            | Self::ProtocolAssignment
            | Self::Documentation
            | Self::Benchmarking
            | Self::Reserved
            | Self::UniqueLocal
            | Self::NotGlobalUnicast => false,
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// First match wins, so the narrower stands before the wider.
const IPV4: &[(Ipv4Net, Block)] = &[
    (v4(168, 63, 129, 16, 32), Block::Metadata),
    (v4(100, 100, 100, 200, 32), Block::Metadata),
    (v4(0, 0, 0, 0, 8), Block::ThisNetwork),
    (v4(10, 0, 0, 0, 8), Block::Private),
    (v4(100, 64, 0, 0, 10), Block::Shared),
    (v4(127, 0, 0, 0, 8), Block::Loopback),
    (v4(169, 254, 0, 0, 16), Block::LinkLocal),
    (v4(172, 16, 0, 0, 12), Block::Private),
    (v4(192, 0, 0, 0, 24), Block::ProtocolAssignment),
    (v4(192, 0, 2, 0, 24), Block::Documentation),
    (v4(192, 88, 99, 0, 24), Block::SixToFour),
    (v4(192, 168, 0, 0, 16), Block::Private),
    (v4(198, 18, 0, 0, 15), Block::Benchmarking),
    (v4(198, 51, 100, 0, 24), Block::Documentation),
    (v4(203, 0, 113, 0, 24), Block::Documentation),
    (v4(224, 0, 0, 0, 4), Block::Multicast),
    (v4(255, 255, 255, 255, 32), Block::Broadcast),
    (v4(240, 0, 0, 0, 4), Block::Reserved),
];

/// First match wins. What no line names and isn't in `2000::/3` is [`Block::NotGlobalUnicast`].
const IPV6: &[(Ipv6Net, Block)] = &[
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), Block::Metadata),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Block::ThisNetwork),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Block::Loopback),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), Block::Embedded4),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), Block::Embedded4),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), Block::Embedded4),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), Block::Nat64),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Block::Nat64),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Block::Teredo),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Block::ProtocolAssignment),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Block::Documentation),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), Block::SixToFour),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Block::Documentation),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Block::UniqueLocal),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Block::LinkLocal),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Block::Multicast),
];

const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// What keeps `address` from being an ordinary public one; `None` if nothing does.
#[must_use]
pub fn block(address: IpAddr) -> Option<Block> {
    match address {
        IpAddr::V4(a) => IPV4.iter().find(|(net, _)| net.contains(&a)).map(|(_, b)| *b),
        IpAddr::V6(a) => IPV6
            .iter()
            .find(|(net, _)| net.contains(&a))
            .map(|(_, b)| *b)
            .or_else(|| (!GLOBAL_UNICAST.contains(&a)).then_some(Block::NotGlobalUnicast)),
    }
}

/// What the platform says about addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Networks that an entry may list as well, to be let through though they aren't public.
    pub allow: Vec<IpNet>,
    /// Networks that are refused whatever else is listed.
    pub deny: Vec<IpNet>,
    /// Our own listeners, database, bus, vault. An unspecified address stands for each address that this
    /// machine could have, so it refuses its port at every address that isn't public.
    pub own: Vec<SocketAddr>,
}

/// An address that must not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is refused: {block}")]
pub struct AddressRefused {
    /// The address.
    pub address: IpAddr,
    /// Why.
    pub block: Block,
}

impl Addresses {
    /// Whether `to` may be dialled for an entry that lists `listed`.
    ///
    /// # Errors
    /// What the address is, if it may not.
    pub fn check(&self, to: SocketAddr, listed: &[IpNet]) -> Result<(), AddressRefused> {
        let address = to.ip();
        let block = block(address);
        let refuse = |block| Err(AddressRefused { address, block });
        if self.own.iter().any(|own| is_own(*own, to, block)) {
            return refuse(Block::Own);
        }
        if self.deny.iter().any(|net| net.contains(&address)) {
            return refuse(Block::Denied);
        }
        let holds = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        match block {
            None => Ok(()),
            Some(b) if !b.is_final() && holds(&self.allow) && holds(listed) => Ok(()),
            Some(b) => refuse(b),
        }
    }
}

fn is_own(own: SocketAddr, to: SocketAddr, block: Option<Block>) -> bool {
    own.port() == to.port() && (own.ip() == to.ip() || (own.ip().is_unspecified() && block.is_some()))
}

#[cfg(test)]
mod tests;
