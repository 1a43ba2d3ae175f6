//! From a handle to a secret, at the moment of use, for one org and one origin; or no call at all.
//!
//! Promises: a handle resolves only where the platform granted it; a secret that is missing, empty or not fit
//! for a header is [`Unavailable`], never "no credential"; no secret shows in `Debug`, `Display` or an error.
//! What a secret could come back as is in [`echo`].

pub mod echo;
pub mod file;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exeat_core::id::{Malformed, OrgName};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::target::{Origin, Origins};

/// A secret longer than this isn't one; in bytes.
pub const LONGEST_SECRET: usize = 8 * 1024;
/// How long a secret's source may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a secret lies: `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handle {
    /// A variable of our own environment.
    Env(String),
    /// A file beneath `credentials/{org}/`.
    File(file::Inside),
}

impl FromStr for Handle {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let bad = || Malformed::new("credential handle", "env:NAME or file:PATH (relative, no ..)", text);
        match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) => file::Inside::new(path).map(Self::File).ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// How a secret is shown to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `Authorization: Bearer SECRET` (RFC 6750).
    Bearer,
    /// `Authorization: Basic base64(SECRET)`, the secret being `user:password` (RFC 7617).
    Basic,
    /// A header of its own.
    Header(HeaderName),
}

impl Kind {
    /// A header of its own, unless it is one that the exchange sets or that routes the message.
    ///
    /// # Errors
    /// [`Malformed`] if it isn't a header name, or is one of these.
    pub fn header(name: &str) -> Result<Self, Malformed> {
        let bad = || Malformed::new("credential header", "a header name that the exchange does not set", name);
        let name = HeaderName::from_str(name).map_err(|_| bad())?;
        if crate::exchange::is_reserved(&name) { Err(bad()) } else { Ok(Self::Header(name)) }
    }
}

/// What an entry of the registry says about its credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credential {
    /// How it is shown.
    pub kind: Kind,
    /// Where it lies.
    pub from: Handle,
}

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
            one => one.parse().map(Self::One),
        }
    }
}

/// That an org may use some handles, towards some origins. From the platform's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who.
    pub org: OrgName,
    /// What.
    pub handles: Handles,
    /// Where to. [`Origins::Any`]: wherever an entry of the org is registered.
    pub origins: Origins,
}

impl Grant {
    fn covers(&self, org: &OrgName, handle: &Handle, origin: &Origin) -> bool {
        self.org == *org
            && self.origins.holds(origin)
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
    /// Line breaks, control characters, outer spaces or non-ASCII: not fit for a header (RFC 9110 §5.5).
    #[error("holds a character that no header may carry")]
    BadCharacter,
    /// The source didn't answer.
    #[error("reading took too long")]
    TimedOut,
}

/// A secret ready to be shown to one origin, and to no other.
#[derive(Clone, Debug)]
pub struct Presented {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
    pub(crate) origin: Origin,
    pub(crate) secrets: Vec<SecretString>,
}

impl Presented {
    /// What could come back of it, for [`echo::Echoes`].
    #[must_use]
    pub fn secrets(&self) -> &[SecretString] {
        &self.secrets
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

    /// The secret of `credential`, for `org`, to be shown to `origin` only.
    ///
    /// # Errors
    /// [`Unavailable`]: then no call may be made.
    pub async fn present(
        &self,
        org: &OrgName,
        credential: &Credential,
        origin: &Origin,
    ) -> Result<Presented, Unavailable> {
        let fail = |why| Unavailable { handle: credential.from.to_string(), why };
        if !self.grants.iter().any(|g| g.covers(org, &credential.from, origin)) {
            return Err(fail(Why::NotGranted));
        }
        let secret = self.read(org, &credential.from).await.map_err(fail)?;
        fit(&secret).map_err(fail)?;
        present(&credential.kind, secret, origin).ok_or_else(|| fail(Why::BadCharacter))
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

fn present(kind: &Kind, secret: SecretString, origin: &Origin) -> Option<Presented> {
    let s = secret.expose_secret();
    let (name, shown, more) = match kind {
        // A token with a space in it would read as further parameters (RFC 6750 §2.1).
        Kind::Bearer if s.contains(' ') => return None,
        Kind::Bearer => (AUTHORIZATION, SecretString::from(format!("Bearer {s}")), None),
        Kind::Basic => {
            let (_, password) = s.split_once(':')?;
            let shown = SecretString::from(format!("Basic {}", STANDARD.encode(s)));
            (AUTHORIZATION, shown, Some(password).filter(|p| p.len() > 3).map(SecretString::from))
        }
        Kind::Header(name) => (name.clone(), secret.clone(), None),
    };
    let mut value = HeaderValue::from_str(shown.expose_secret()).ok()?;
    value.set_sensitive(true);
    let secrets = std::iter::once(secret).chain(more).collect();
    Some(Presented { name, value, origin: origin.clone(), secrets })
}

#[cfg(test)]
mod tests;
