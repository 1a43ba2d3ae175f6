//! From a name to its addresses: one look-up per exchange, whose answer is checked whole and then pinned.
//!
//! Promises: names are asked absolute (no search list), with a deadline; a look-up of which any half failed
//! is a failed look-up. It never connects to what it finds, and an answer that holds one refused address is
//! refused as a whole by [`check`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, Resolver as Hickory, TokioResolver};
use ipnet::IpNet;

use crate::address::{AddressRefused, Addresses};

/// More addresses than this under one name are refused: no honest agent needs them.
const MOST_ADDRESSES: usize = 64;
/// An answer is never believed for longer than this.
const LONGEST_TTL: Duration = Duration::from_secs(300);
/// Nor its absence.
const LONGEST_MISS: Duration = Duration::from_secs(15);

/// Why a name has no addresses for us.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name doesn't exist, or has no address.
    #[error("the name has no address")]
    NoAddress,
    /// The servers didn't give a whole answer.
    #[error("the look-up failed: {0}")]
    Failed(String),
    /// No answer in time.
    #[error("the look-up took too long")]
    TimedOut,
    /// More than anyone needs.
    #[error("the name has more than {MOST_ADDRESSES} addresses")]
    TooMany,
    /// The system's resolver configuration can't be used.
    #[error("the resolver cannot be set up: {0}")]
    Setup(String),
}

/// Asks for the addresses of names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of `name` (lower case, ASCII, no trailing dot), in no order that means anything.
    ///
    /// # Errors
    /// [`ResolveError`]; half an answer is an error.
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError>;
}

/// The DNS, by the system's servers or a given one.
pub struct Dns {
    servers: TokioResolver,
    hosts: Hosts,
}

impl Dns {
    /// By the system's configuration and hosts file. What the file names is not asked of any server.
    ///
    /// # Errors
    /// [`ResolveError::Setup`] if it can't be read.
    pub fn system() -> Result<Self, ResolveError> {
        let mut builder = Hickory::builder_tokio().map_err(|e| setup(&e))?;
        bound(builder.options_mut());
        let hosts = Hosts::from_system().unwrap_or_default();
        Ok(Self { servers: builder.build().map_err(|e| setup(&e))?, hosts })
    }

    /// By this server alone: no hosts file, no other server.
    ///
    /// # Errors
    /// [`ResolveError::Setup`].
    pub fn server(server: SocketAddr) -> Result<Self, ResolveError> {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut c| {
            c.port = server.port();
            c
        });
        let server = NameServerConfig::new(server.ip(), true, connections.into());
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut builder = Hickory::builder_with_config(config, TokioRuntimeProvider::default());
        bound(builder.options_mut());
        Ok(Self { servers: builder.build().map_err(|e| setup(&e))?, hosts: Hosts::default() })
    }

    fn in_file(&self, name: &Name) -> Vec<IpAddr> {
        let found = [RecordType::A, RecordType::AAAA]
            .into_iter()
            .filter_map(|kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind)));
        found.flat_map(|l| l.answers().iter().filter_map(|r| address(&r.data)).collect::<Vec<_>>()).collect()
    }

    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, ResolveError> {
        match self.servers.lookup(name.clone(), kind).await {
            Ok(found) => Ok(found.answers().iter().filter_map(|r| address(&r.data)).collect()),
            Err(e) if e.is_no_records_found() && !is_server_failure(&e) => Ok(Vec::new()),
            Err(NetError::Timeout) => Err(ResolveError::TimedOut),
            Err(e) => Err(ResolveError::Failed(short(&e))),
        }
    }
}

fn bound(options: &mut ResolverOpts) {
    options.timeout = Duration::from_secs(3);
    options.attempts = 2;
    options.use_hosts_file = ResolveHosts::Never;
    options.positive_max_ttl = Some(LONGEST_TTL);
    options.negative_max_ttl = Some(LONGEST_MISS);
}

/// "No records" with a response code that says the server failed isn't an empty answer.
fn is_server_failure(e: &NetError) -> bool {
    use hickory_resolver::net::DnsError;
    use hickory_resolver::proto::op::ResponseCode;
    match e {
        NetError::Dns(DnsError::NoRecordsFound(n)) => {
            !matches!(n.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
        }
        _ => true,
    }
}

fn address(data: &RData) -> Option<IpAddr> {
    match data {
        RData::A(a) => Some(a.0.into()),
        RData::AAAA(a) => Some(a.0.into()),
        _ => None,
    }
}

fn short(e: &NetError) -> String {
    e.to_string().chars().take(160).collect()
}

fn setup(e: &NetError) -> ResolveError {
    ResolveError::Setup(short(e))
}

#[async_trait]
impl Resolver for Dns {
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        // RFC 6761 §6.3: `localhost` is answered here, whatever a server would say.
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
        }
        let absolute =
            Name::from_ascii(format!("{name}.")).map_err(|e| ResolveError::Failed(e.to_string()))?;
        let listed = self.in_file(&absolute);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let (a, aaaa) =
            tokio::try_join!(self.ask(&absolute, RecordType::A), self.ask(&absolute, RecordType::AAAA))?;
        Ok(a.into_iter().chain(aaaa).collect())
    }
}

/// A fixed table: for tests, and for installations that want no DNS at all.
#[derive(Clone, Debug, Default)]
pub struct Table(HashMap<String, Vec<IpAddr>>);

impl Table {
    /// Of names (as [`Resolver::addresses`] takes them) and their addresses.
    pub fn new(rows: impl IntoIterator<Item = (String, Vec<IpAddr>)>) -> Self {
        Self(rows.into_iter().collect())
    }
}

#[async_trait]
impl Resolver for Table {
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        Ok(self.0.get(name).cloned().unwrap_or_default())
    }
}

/// The answer, checked whole: if any address is refused, so is the name. IPv4 first.
///
/// # Errors
/// The first refused address.
pub(crate) fn check(
    found: &[IpAddr],
    port: u16,
    addresses: &Addresses,
    listed: &[IpNet],
) -> Result<Vec<SocketAddr>, AddressRefused> {
    let mut checked = found
        .iter()
        .map(|ip| {
            let to = SocketAddr::new(*ip, port);
            addresses.check(to, listed).map(|()| to)
        })
        .collect::<Result<Vec<_>, _>>()?;
    checked.sort();
    checked.dedup();
    Ok(checked)
}

/// Asks and bounds: within `within`, at least one address, not too many.
///
/// # Errors
/// [`ResolveError`].
pub(crate) async fn ask(
    resolver: &dyn Resolver,
    name: &str,
    within: Duration,
) -> Result<Vec<IpAddr>, ResolveError> {
    let found = tokio::time::timeout(within, resolver.addresses(name))
        .await
        .map_err(|_| ResolveError::TimedOut)??;
    match found.len() {
        0 => Err(ResolveError::NoAddress),
        n if n > MOST_ADDRESSES => Err(ResolveError::TooMany),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{NameServer, Reply, addresses};

    #[tokio::test]
    async fn what_the_hosts_file_names_is_asked_of_no_server() {
        let server = NameServer::new(|_, _| Reply::Code(2));
        let mut dns = Dns::server(server.address).unwrap();
        dns.hosts.read_hosts_conf(&b"10.0.0.7 Peer.test two.test\nfd12::1 peer.test\n"[..]).unwrap();
        assert_eq!(dns.addresses("peer.test").await.unwrap().len(), 2);
        assert_eq!(dns.addresses("two.test").await, Ok(vec![[10, 0, 0, 7].into()]));
        assert_eq!(server.questions(), []);
        assert!(dns.addresses("three.test").await.is_err());
    }

    #[tokio::test]
    async fn a_name_with_too_many_addresses_is_refused() {
        let many: Vec<String> = (0..70).map(|i| format!("8.8.8.{i}")).collect();
        let reply = addresses(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let server = NameServer::new(move |_, _| reply.clone());
        let dns = Dns::server(server.address).unwrap();
        let asked = ask(&dns, "many.test", Duration::from_secs(20)).await;
        assert_eq!(asked, Err(ResolveError::TooMany));
    }
}
