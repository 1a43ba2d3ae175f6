//! Whom the client trusts where the server's URL is https: the public roots, or the one CA that the user names instead.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::failure::Failure;

/// How TLS is spoken. `ca`: a file of PEM certificates that alone are trusted.
///
/// # Errors
/// If the file can't be read, or holds no certificate.
pub(super) fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, Failure> {
    let roots = match ca {
        Some(path) => named(path)?,
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Failure::usage(format!("cannot speak TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn named(path: &Path) -> Result<RootCertStore, Failure> {
    let shown = path.display();
    let bad = |why: String| {
        Failure::usage(format!("{shown} isn't a CA: {why}"))
            .next("give --ca or EXEAT_CA a PEM file of certificates")
    };
    let text = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|e| bad(e.to_string()))?;
        roots.add(certificate).map_err(|e| bad(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("it holds no certificate".to_owned()));
    }
    Ok(roots)
}
