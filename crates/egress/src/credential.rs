//! From a handle to a secret, at the moment of use, for one org and one origin; or no call at all.
//!
//! Promises: a handle resolves only where the platform granted it; a secret that is missing, empty or not fit
//! for a header is [`Unavailable`], never "no credential"; no secret shows in `Debug`, `Display` or an error.
//! What a secret could come back as is in [`echo`].

pub(crate) mod echo;
mod file;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use exeat_core::id::{Malformed, OrgName};
use exeat_core::registry::{Credential, Handle};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::target::Origin;

/// A secret longer than this isn't one; in bytes.
pub const LONGEST_SECRET: usize = 8 * 1024;
/// How long a secret's source may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which handles a grant covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handles {
    /// `env:*`: every variable but our own settings.
    EveryEnv,
    /// `file:*`: every file beneath the org's folder.
    EveryFile,
    /// This one.
    One(Handle),
}

impl FromStr for Handles {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        match text {
            "env:*" => Ok(Self::EveryEnv),
            "file:*" => Ok(Self::EveryFile),
            one => Handle::try_from(one.to_owned()).map(Self::One),
        }
    }
}

/// Where the secrets of a grant may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Towards {
    /// The registered origin of whichever entry names the handle, and nowhere else.
    Registered,
    /// These origins, whether registered or from the entry's allow list.
    Listed(Vec<Origin>),
}

/// That an org may use some handles, towards some origins. From the platform's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who.
    pub org: OrgName,
    /// What.
    pub handles: Handles,
    /// Where to.
    pub towards: Towards,
}

impl Grant {
    fn covers(&self, org: &OrgName, handle: &Handle, registered: &Origin, origin: &Origin) -> bool {
        let there = match &self.towards {
            Towards::Registered => registered == origin,
            Towards::Listed(origins) => origins.contains(origin),
        };
        self.org == *org
            && there
            && match (&self.handles, handle) {
                (Handles::EveryEnv, Handle::Env(_)) | (Handles::EveryFile, Handle::File(_)) => true,
                (Handles::One(one), handle) => one == handle,
                _ => false,
            }
    }
}

/// Why there is no secret, and so no call. Says which handle, never what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("credential {handle} is unavailable: {why}")]
pub struct Unavailable {
    /// The handle, as written.
    pub handle: String,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The platform grants the org no such handle for this origin.
    #[error("not granted to this org for this origin")]
    NotGranted,
    /// One of our own settings.
    #[error("EXEAT_ variables are never credentials")]
    OurOwn,
    /// Not there, not readable, or a link.
    #[error("not found")]
    NotFound,
    /// There, and empty.
    #[error("empty")]
    Empty,
    /// Not UTF-8.
    #[error("not text")]
    NotText,
    /// Over the bound.
    #[error("longer than {LONGEST_SECRET} bytes")]
    TooLong,
    /// To be shown in a header that the exchange sets itself.
    #[error("its header is one that the exchange sets itself")]
    ReservedHeader,
    /// Line breaks, control characters, outer spaces or non-ASCII: not fit for a header (RFC 9110 §5.5).
    #[error("holds a character that no header may carry")]
    BadCharacter,
    /// The source didn't answer.
    #[error("reading took too long")]
    TimedOut,
}

/// A secret ready to be shown to one origin, and to no other.
#[derive(Clone, Debug)]
pub(crate) struct Presented {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
    pub(crate) origin: Origin,
    pub(crate) secret: SecretString,
}

impl Presented {
    /// What could come back of it, for [`echo::Echoes`].
    pub(crate) const fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// Tells one value of the secret from another without holding either; for keys of caches in memory,
    /// never stored.
    pub(crate) fn version(&self) -> [u8; 32] {
        Sha256::new()
            .chain_update(b"exeat-credential-version")
            .chain_update(self.value.as_bytes())
            .finalize()
            .into()
    }
}

/// Looks up variables: the process environment, or a table in tests.
pub type Environment = Arc<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// The process environment.
#[must_use]
pub fn process_environment() -> Environment {
    Arc::new(|name| std::env::var_os(name))
}

/// Resolves handles. Secrets are read anew on each use and kept nowhere.
#[derive(Clone)]
pub struct Credentials {
    grants: Arc<[Grant]>,
    environment: Environment,
    folder: PathBuf,
}

impl Credentials {
    /// Of the platform's grants, an environment and the `credentials` folder.
    pub fn new(grants: Vec<Grant>, environment: Environment, folder: PathBuf) -> Self {
        Self { grants: grants.into(), environment, folder }
    }

    /// The secret of `credential`, for `org`, to be shown to `origin` only; `registered` is that of the entry.
    ///
    /// # Errors
    /// [`Unavailable`]: then no call may be made.
    pub(crate) async fn present(
        &self,
        org: &OrgName,
        credential: &Credential,
        registered: &Origin,
        origin: &Origin,
    ) -> Result<Presented, Unavailable> {
        let handle = credential.handle();
        let fail = |why| Unavailable { handle: String::from(handle.clone()), why };
        if !self.grants.iter().any(|g| g.covers(org, handle, registered, origin)) {
            return Err(fail(Why::NotGranted));
        }
        let secret = self.read(org, handle).await.map_err(fail)?;
        fit(&secret).map_err(fail)?;
        present(credential, secret, origin).map_err(fail)
    }

    async fn read(&self, org: &OrgName, handle: &Handle) -> Result<SecretString, Why> {
        match handle {
            Handle::Env(name) if name.to_ascii_uppercase().starts_with("EXEAT_") => Err(Why::OurOwn),
            Handle::Env(name) => {
                let value = (self.environment)(name).ok_or(Why::NotFound)?;
                value.into_string().map(SecretString::from).map_err(|_| Why::NotText)
            }
            Handle::File(path) => {
                let (folder, path) = (self.folder.join(org.as_str()), path.clone());
                let reading = tokio::task::spawn_blocking(move || file::read(&folder, &path));
                match tokio::time::timeout(PATIENCE, reading).await {
                    Ok(Ok(read)) => read,
                    Ok(Err(_)) => Err(Why::NotFound),
                    Err(_) => Err(Why::TimedOut),
                }
            }
        }
    }
}

/// Whether a secret can stand in a header as it is.
fn fit(secret: &SecretString) -> Result<(), Why> {
    let s = secret.expose_secret();
    if s.is_empty() {
        Err(Why::Empty)
    } else if s.len() > LONGEST_SECRET {
        Err(Why::TooLong)
    } else if !s.bytes().all(|b| (0x20..0x7f).contains(&b)) || s.trim().len() != s.len() {
        Err(Why::BadCharacter)
    } else {
        Ok(())
    }
}

fn present(credential: &Credential, secret: SecretString, origin: &Origin) -> Result<Presented, Why> {
    let s = secret.expose_secret();
    let (name, shown) = match credential {
        // A token with a space in it would read as further parameters (RFC 6750 §2.1).
        Credential::Bearer { .. } if s.contains(' ') => return Err(Why::BadCharacter),
        Credential::Bearer { .. } => (AUTHORIZATION, SecretString::from(format!("Bearer {s}"))),
        Credential::Header { header, .. } => {
            let name = HeaderName::from_str(header.as_str()).map_err(|_| Why::ReservedHeader)?;
            if crate::exchange::is_reserved(&name) {
                return Err(Why::ReservedHeader);
            }
            (name, secret.clone())
        }
    };
    let mut value = HeaderValue::from_str(shown.expose_secret()).map_err(|_| Why::BadCharacter)?;
    value.set_sensitive(true);
    Ok(Presented { name, value, origin: origin.clone(), secret })
}

#[cfg(test)]
mod tests;
