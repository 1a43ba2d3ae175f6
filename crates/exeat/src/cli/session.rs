//! What a command works with: where the server is, who asks, and where results go.

use std::path::PathBuf;

use crate::client::Client;
use crate::failure::Failure;
use crate::show::Show;

/// One use of the command line against a server.
pub(crate) struct Session {
    /// Where results and progress go.
    pub(crate) show: Show,
    /// The server, asked as the key's holder.
    pub(crate) client: Client,
    url: String,
}

impl Session {
    /// Finds the key and makes the client. No contact yet.
    ///
    /// # Errors
    /// If the URL or the key is malformed, or the key's file can't be read.
    pub(crate) fn new(show: Show, url: &str, key: Option<&str>) -> Result<Self, Failure> {
        let key = find_key(url, key)?;
        let client = Client::new(url, key.as_deref())?;
        Ok(Self { show, client, url: url.to_owned() })
    }

    /// The same with another key.
    pub(crate) fn with_key(self, key: &str) -> Result<Self, Failure> {
        Self::new(self.show, &self.url, Some(key))
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

fn read_key(path: &std::path::Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::usage(format!("cannot read the API key from {}: {e}", path.display())))?;
    match text.trim() {
        "" => Err(Failure::usage(format!("the key file {} is empty", path.display()))),
        key => Ok(key.to_owned()),
    }
}
