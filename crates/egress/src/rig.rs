//! For this room's unit tests: connectors that reach the peers on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use exeat_core::time::{Monotonic, Span};

use crate::address::Addresses;
use crate::connect::{Dialer, tls};
use crate::exchange::{Bounds, Connector, Request};
use crate::resolve::{Dns, Resolver, Table};
use crate::target::{Entry, Origin, Origins, Plaintext, Platform, Target};

#[path = "../tests/it/peers.rs"]
mod peers;
pub(crate) use peers::{Identity, NameServer, Peer, Reply, addresses, ok};

impl Peer {
    pub(crate) fn url(&self) -> String {
        format!("http://{}/rpc", self.address)
    }
}

impl NameServer {
    pub(crate) fn resolver(&self) -> Arc<dyn Resolver> {
        Arc::new(Dns::server(self.address).unwrap())
    }
}

/// Loopback let through on both sides.
pub(crate) fn open_platform() -> Platform {
    let allow = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    Platform {
        origins: Origins::Any,
        ports: vec![443],
        addresses: Addresses { allow, ..Addresses::default() },
    }
}

/// A plaintext entry for the origin of `url` that lists loopback.
pub(crate) fn entry(url: &str) -> Entry {
    Entry {
        registered: origin(url),
        origins: vec![],
        plaintext: Plaintext::Allowed,
        networks: open_platform().addresses.allow,
    }
}

pub(crate) fn origin(url: &str) -> Origin {
    url.parse::<Target>().unwrap().origin().clone()
}

pub(crate) fn bounds() -> Bounds {
    Bounds {
        connect: Span::of_secs(20),
        total: Span::of_secs(20),
        head_bytes: 16 * 1024,
        body_bytes: 64 * 1024,
    }
}

/// Later than any test.
pub(crate) const LATER: Monotonic = Monotonic(3_600_000_000);

pub(crate) fn table(rows: &[(&str, &str)]) -> Arc<dyn Resolver> {
    Arc::new(Table::new(rows.iter().map(|(n, ip)| ((*n).to_owned(), vec![ip.parse().unwrap()]))))
}

pub(crate) fn connector(
    platform: Platform,
    resolver: Arc<dyn Resolver>,
    bounds: Bounds,
    ca: &str,
) -> Connector {
    let dialer = Dialer::new(resolver, tls(ca.as_bytes()).unwrap());
    Connector::new(dialer, Arc::new(platform), bounds, Arc::new(|| Monotonic(0)))
}

/// One that reaches loopback.
pub(crate) fn open_connector() -> Connector {
    connector(open_platform(), table(&[]), bounds(), "")
}

pub(crate) fn get(url: &str) -> Request {
    Request::get(url.parse().unwrap())
}

/// A port of loopback where nobody listens.
pub(crate) fn closed_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
