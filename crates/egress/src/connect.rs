//! From a cleared target to a stream: resolve once, check every address, pin, connect, TLS.
//!
//! The only place that dials. It connects to an address that was checked, with the name as TLS server name;
//! literal addresses go through the same check. No proxy is read from the environment (one can be set, and the
//! target is checked before it is asked), nothing is pooled and no TLS session is resumed, so that nothing of one
//! agent or org can be met by another.

pub(crate) mod proxy;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ipnet::IpNet;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::proxy::Proxy;
use crate::address::{AddressRefused, Addresses};
use crate::resolve::{self, ResolveError, Resolver};
use crate::target::{Host, Scheme, Target};

/// At most this many of a name's addresses are tried.
const MOST_TRIED: usize = 4;

/// Why there is no connection. No byte of a request has left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name couldn't be resolved.
    #[error("{0}")]
    Resolve(#[from] ResolveError),
    /// An address of the name, or the literal, must not be dialled.
    #[error("{0}")]
    Address(#[from] AddressRefused),
    /// Nobody answered at any checked address.
    #[error("cannot connect: {0}")]
    Tcp(String),
    /// Not within the time.
    #[error("connecting took too long")]
    TimedOut,
    /// The egress proxy wouldn't or couldn't.
    #[error("the egress proxy: {0}")]
    Proxy(String),
    /// No TLS session: wrong certificate, wrong name, no common version.
    #[error("no TLS session: {0}")]
    Tls(String),
}

/// Roots that aren't certificates, or a crypto provider without the versions that are needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS cannot be set up: {0}")]
pub struct BadTls(String);

/// The TLS side of all connections: the Mozilla roots and the operator's, TLS 1.2 and 1.3, HTTP/1.1 only.
///
/// # Errors
/// [`BadTls`] if `extra_roots` (PEM, may be empty) holds something that isn't a certificate.
pub(crate) fn tls(extra_roots: &[u8]) -> Result<Arc<ClientConfig>, BadTls> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in CertificateDer::pem_slice_iter(extra_roots) {
        let certificate = certificate.map_err(|e| BadTls(e.to_string()))?;
        roots.add(certificate).map_err(|e| BadTls(e.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| BadTls(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A connection to a checked address.
pub(crate) enum Stream {
    /// In clear.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Dials targets.
#[derive(Clone)]
pub(crate) struct Dialer {
    resolver: Arc<dyn Resolver>,
    tls: Arc<ClientConfig>,
    proxy: Option<Proxy>,
}

impl Dialer {
    /// Of a resolver and the TLS side.
    pub(crate) fn new(resolver: Arc<dyn Resolver>, tls: Arc<ClientConfig>) -> Self {
        Self { resolver, tls, proxy: None }
    }

    /// The same, through this proxy.
    pub(crate) fn through(self, proxy: Option<Proxy>) -> Self {
        Self { proxy, ..self }
    }

    /// Connects to `target`, if every address that it has may be dialled, within `within`.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing of a request has left.
    pub(crate) async fn dial(
        &self,
        target: &Target,
        addresses: &Addresses,
        listed: &[IpNet],
        within: Duration,
    ) -> Result<Stream, ConnectError> {
        let until = Instant::now() + within;
        let port = target.origin().port();
        let found: Vec<IpAddr> = match target.origin().host() {
            Host::Address(ip) => vec![*ip],
            Host::Name(name) => resolve::ask(&*self.resolver, name, within).await?,
        };
        let checked = resolve::check(&found, port, addresses, listed)?;
        let tcp = match &self.proxy {
            None => first_that_answers(&checked, until).await?,
            Some(proxy) => self.tunnel(proxy, target, until).await?,
        };
        Ok(match target.origin().scheme() {
            Scheme::Http => Stream::Plain(tcp),
            Scheme::Https => {
                Stream::Tls(Box::new(self.shake_hands(tcp, target.origin().host(), until).await?))
            }
        })
    }

    /// A tunnel to the target's name. The proxy looks it up for itself: what it lets through is the network's own,
    /// second word.
    async fn tunnel(
        &self,
        proxy: &Proxy,
        target: &Target,
        until: Instant,
    ) -> Result<TcpStream, ConnectError> {
        let left = until.saturating_duration_since(Instant::now());
        let found = match &proxy.host {
            Host::Address(ip) => vec![*ip],
            Host::Name(name) => resolve::ask(&*self.resolver, name, left).await?,
        };
        let at: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, proxy.port)).collect();
        let mut tcp = first_that_answers(&at, until).await?;
        let opening = proxy::open(&mut tcp, target.origin());
        let opened = tokio::time::timeout_at(until, opening).await.map_err(|_| ConnectError::TimedOut)?;
        opened.map_err(ConnectError::Proxy)?;
        Ok(tcp)
    }

    async fn shake_hands(
        &self,
        tcp: TcpStream,
        host: &Host,
        until: Instant,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let name = match host {
            Host::Name(n) => ServerName::try_from(n.clone()).map_err(|e| ConnectError::Tls(e.to_string()))?,
            Host::Address(ip) => ServerName::IpAddress((*ip).into()),
        };
        let connecting = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
        tokio::time::timeout_at(until, connecting)
            .await
            .map_err(|_| ConnectError::TimedOut)?
            .map_err(|e| ConnectError::Tls(short(&e)))
    }
}

/// Tries the addresses in turn, each with its share of the time left.
async fn first_that_answers(checked: &[SocketAddr], until: Instant) -> Result<TcpStream, ConnectError> {
    let mut last = ConnectError::Tcp("no address".to_owned());
    let tried = checked.len().min(MOST_TRIED);
    for (i, address) in checked.iter().take(MOST_TRIED).enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let shares = u32::try_from(tried.saturating_sub(i)).unwrap_or(1).max(1);
        match tokio::time::timeout(left / shares, connect(*address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(e)) => last = ConnectError::Tcp(short(&e)),
            Err(_) => last = ConnectError::TimedOut,
        }
    }
    Err(last)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that dials: the address was checked just before"
)]
async fn connect(checked: SocketAddr) -> std::io::Result<TcpStream> {
    let tcp = TcpStream::connect(checked).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

fn short(e: &std::io::Error) -> String {
    e.to_string().chars().take(160).collect()
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tls(s) => Pin::new(&mut **s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(s) => Pin::new(s).poll_write(cx, buf),
            Self::Tls(s) => Pin::new(&mut **s).poll_write(cx, buf),
        }
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(s) => Pin::new(s).poll_flush(cx),
            Self::Tls(s) => Pin::new(&mut **s).poll_flush(cx),
        }
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(&mut **s).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
