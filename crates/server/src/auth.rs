//! Who calls: API keys.
//!
//! Promises: only a key's hash is stored; comparisons take constant time, and an unknown key costs the same
//! as a wrong one; the store is asked each time, so that a revocation holds at once. To the outside every bad
//! key is the same. Never: logs a key, or any part of one but its id.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use exeat_core::id::{Ids, KeyId, OrgName};
use exeat_core::principal::{ApiKey, KeyScope};
use http::header::AUTHORIZATION;
use http::request::Parts;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::app::App;
use crate::problem::{Code, Problem};

const PREFIX: &str = "exk_";
/// 32 bytes as base64url.
const SECRET: usize = 43;

/// Whoever calls, known by a key that holds.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key.
    pub key: ApiKey,
}

impl Caller {
    /// The caller's only org.
    #[must_use]
    pub const fn org(&self) -> &OrgName {
        &self.key.org
    }

    /// The key's public half.
    #[must_use]
    pub const fn id(&self) -> &KeyId {
        &self.key.id
    }

    /// Has the key this scope?
    #[must_use]
    pub fn has(&self, scope: KeyScope) -> bool {
        self.key.scopes.contains(&scope)
    }

    /// Demands a scope.
    ///
    /// # Errors
    /// 403 `scope_missing`.
    pub fn needs(&self, scope: KeyScope) -> Result<(), Problem> {
        self.needs_one_of(&[scope])
    }

    /// Demands one of several scopes.
    ///
    /// # Errors
    /// 403 `scope_missing`.
    pub fn needs_one_of(&self, scopes: &[KeyScope]) -> Result<(), Problem> {
        if scopes.iter().any(|s| self.has(*s)) {
            return Ok(());
        }
        let names: Vec<&str> = scopes.iter().map(|s| s.as_str()).collect();
        let names = names.join(" or ");
        Err(Problem::new(Code::ScopeMissing, format!("This needs a key with the scope {names}.")))
    }
}

/// Callers who have a scope. As the first of a door's extractors it comes before anything that was said: path,
/// query, headers and body.
macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident: $($scope:ident)|+;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(pub Caller);

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
                let caller = Caller::of(parts, app).await?;
                caller.needs_one_of(&[$(KeyScope::$scope),+])?;
                Ok(Self(caller))
            }
        }
    )*};
}

callers! {
    /// Governs the org.
    Admin: Admin;
    /// Runs it.
    Operator: Operator;
    /// Reads: also whoever governs or runs it.
    Reader: Viewer | Admin | Operator;
    /// Reads what was recorded and spent.
    Viewer: Viewer;
    /// Reads what may be run.
    Runner: Viewer | Admin | Requester;
    /// Starts tasks.
    Requester: Requester;
    /// Moves tasks on: their own, or as who runs the org any.
    Mover: Requester | Operator;
    /// Decides.
    Approver: Approver;
    /// Reads what is to be decided.
    Examiner: Approver | Viewer;
    /// Does the work.
    Worker: Worker;
    /// Runs the platform.
    Platform: Platform;
}

/// A new key: what is stored, and what is shown once.
pub struct Minted {
    /// Its public half.
    pub id: KeyId,
    /// SHA-256 of the whole key, hex.
    pub hash: String,
    /// The whole key: whoever has it is its holder.
    pub text: String,
}

impl std::fmt::Debug for Minted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Minted({})", self.id)
    }
}

/// Makes a key of 256 random bits. `ids` must come from real entropy.
#[must_use]
pub fn mint(ids: &mut Ids) -> Minted {
    let id = KeyId::draw(ids);
    let secret = Zeroizing::new(ids.bytes::<32>());
    let text = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(*secret));
    Minted { id, hash: hex::encode(hash_of(&text)), text }
}

fn hash_of(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// The id that a key's text names, if it has the form of one. Proves nothing.
fn named(text: &str) -> Option<KeyId> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let formed = secret.len() == SECRET && URL_SAFE_NO_PAD.decode(secret).is_ok();
    if formed { id.parse().ok() } else { None }
}

/// Whose key is this?
///
/// # Errors
/// 401, always the same; 503 if the store doesn't answer.
pub async fn authenticate(app: &App, text: &str) -> Result<Caller, Problem> {
    let id = named(text).ok_or_else(unauthenticated)?;
    let found = app.archive.api_key(&id).await?;
    let given = hash_of(text);
    let mut stored = [0; 32];
    let known = match &found {
        Some((key, _)) => hex::decode_to_slice(&key.hash, &mut stored).is_ok(),
        None => false,
    };
    let same = bool::from(given.ct_eq(&stored));
    match found {
        Some((key, _)) if known && same && key.is_live(app.ports.clock.now()) => Ok(Caller { key }),
        _ => Err(unauthenticated()),
    }
}

fn unauthenticated() -> Problem {
    Problem::new(Code::Unauthenticated, "The API key is missing or not valid.")
}

impl Caller {
    /// Whoever sent a request. Doors take one of the callers with a scope, so that no door forgets to ask for it.
    async fn of(parts: &Parts, app: &App) -> Result<Self, Problem> {
        let mut all = parts.headers.get_all(AUTHORIZATION).iter();
        let (Some(one), None) = (all.next(), all.next()) else { return Err(unauthenticated()) };
        let text = one.to_str().map_err(|_| unauthenticated())?;
        let (scheme, token) = text.split_once(' ').ok_or_else(unauthenticated)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthenticated());
        }
        authenticate(app, token.trim()).await
    }
}

#[cfg(test)]
mod tests {
    use exeat_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_minted_key_names_itself_and_shows_its_text_nowhere_else() {
        let mut ids = Ids::new(Timestamp::EPOCH, [7; 32]);
        let (a, b) = (mint(&mut ids), mint(&mut ids));
        assert_ne!(a.id, b.id);
        assert_eq!(named(&a.text), Some(a.id.clone()));
        assert_eq!(a.hash, hex::encode(Sha256::digest(a.text.as_bytes())));
        assert!(!format!("{a:?}").contains(&a.text[20..]));
        for bad in ["", "exk_", "exk_a", "exk_a_b", &a.text[1..], &format!("{}A", a.text), "exk_A_x"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }
}
