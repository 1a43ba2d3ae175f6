//! What a command works with: where the server is, who asks, and where results go.

use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::failure::Failure;
use crate::show::Show;

/// One use of the command line against a server.
pub(crate) struct Session {
    /// Where results and progress go.
    pub(crate) show: Show,
    /// The server, asked as the key's holder.
    pub(crate) client: Client,
    access: Access,
}

/// Where the server is, and how one gets in.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Its URL.
    pub(crate) url: String,
    /// The API key, or @FILE.
    pub(crate) key: Option<String>,
    /// A file of the certificates that alone vouch for it.
    pub(crate) ca: Option<PathBuf>,
}

impl Session {
    /// Finds the key and makes the client. No contact yet.
    ///
    /// # Errors
    /// If the URL or the key is malformed, or the file of the key or the CA can't be read.
    pub(crate) fn new(show: Show, access: Access) -> Result<Self, Failure> {
        let key = find_key(&access.url, access.key.as_deref())?;
        let client = Client::new(&access.url, key.as_deref(), access.ca.as_deref())?;
        Ok(Self { show, client, access })
    }

    /// Does the address itself say that the server is on this machine?
    pub(crate) fn is_on_this_machine(&self) -> bool {
        Client::is_loopback(&self.access.url)
    }

    /// A client without a key for another address of the same server.
    ///
    /// # Errors
    /// If it isn't an http or https URL.
    pub(crate) fn at(&self, url: &str) -> Result<Client, Failure> {
        Client::new(url, None, self.access.ca.as_deref())
    }

    /// The same with another key.
    pub(crate) fn with_key(self, key: &str) -> Result<Self, Failure> {
        Self::new(self.show, Access { key: Some(key.to_owned()), ..self.access })
    }
}

fn find_key(url: &str, given: Option<&str>) -> Result<Option<String>, Failure> {
    match given.filter(|k| !k.is_empty()) {
        Some(key) => match key.strip_prefix('@') {
            Some(path) => read_key(&PathBuf::from(path)).map(Some),
            None => Ok(Some(key.trim().to_owned())),
        },
        None => {
            if let Some(path) = std::env::var_os("EXEAT_KEY_FILE").filter(|p| !p.is_empty()) {
                return read_key(&PathBuf::from(path)).map(Some);
            }
            // A key that merely lies about is offered to no other machine.
            if !Client::is_loopback(url) {
                return Ok(None);
            }
            let dir = std::env::var_os("EXEAT_DATA").filter(|d| !d.is_empty());
            let path = PathBuf::from(dir.unwrap_or_else(|| "exeat-data".into())).join("admin.key");
            if path.is_file() { read_key(&path).map(Some) } else { Ok(None) }
        }
    }
}

fn read_key(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::usage(format!("cannot read the API key from {}: {e}", path.display())))?;
    match text.trim() {
        "" => Err(Failure::usage(format!("the key file {} is empty", path.display()))),
        key => Ok(key.to_owned()),
    }
}
