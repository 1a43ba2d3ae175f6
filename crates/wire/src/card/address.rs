//! Where a card may lie: on the registered host and nowhere else.

use url::Url;

/// Well-known paths, the current one first (A2A 0.3 and later; 0.2.6 and before).
const WELL_KNOWN: [&str; 2] = [".well-known/agent-card.json", ".well-known/agent.json"];

/// Not an address that a card can be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCardUrl {
    /// Not a URL.
    #[error("not an absolute URL")]
    NotAUrl,
    /// Neither http nor https.
    #[error("only http and https are spoken")]
    Scheme,
    /// A name or password in the URL.
    #[error("a URL must not carry a user name or password; credentials are handles of the entry")]
    UserInfo,
}

/// The addresses to try for a registered URL, in order, at most four, all on its scheme, host and port.
///
/// A URL whose last segment ends in `.json` is the card itself and the only one tried. Any other is a base: its
/// own well-known paths come first (platforms host many agents below one origin, each with its own card), the
/// origin's after. A query stays (one platform picks the agent by it), a fragment goes. The next one is tried
/// only if [`try_next`] says so.
///
/// # Errors
/// If it isn't an http or https URL without userinfo.
pub fn card_candidates(url: &str) -> Result<Vec<Url>, BadCardUrl> {
    let mut url = Url::parse(url).map_err(|_| BadCardUrl::NotAUrl)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(BadCardUrl::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BadCardUrl::UserInfo);
    }
    url.set_fragment(None);
    let path = url.path().to_owned();
    if path.rsplit('/').next().is_some_and(|last| last.to_ascii_lowercase().ends_with(".json")) {
        return Ok(vec![url]);
    }
    let base = path.trim_end_matches('/');
    let prefixes = if base.is_empty() { vec![""] } else { vec![base, ""] };
    let at = |prefix: &str, well_known: &str| {
        let mut candidate = url.clone();
        candidate.set_path(&format!("{prefix}/{well_known}"));
        candidate
    };
    Ok(prefixes.iter().flat_map(|prefix| WELL_KNOWN.map(|well_known| at(prefix, well_known))).collect())
}

/// Whether this HTTP status says that the card isn't *here*, so that the next address may be tried. A refusal
/// (401, 403), a fault (5xx), a redirect or a silence says nothing about another address.
#[must_use]
pub const fn try_next(http_status: u16) -> bool {
    matches!(http_status, 404 | 405 | 410)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(url: &str) -> Vec<String> {
        card_candidates(url).unwrap().iter().map(Url::to_string).collect()
    }

    #[test]
    fn o_card_04_the_old_path_is_tried_after_the_new_one_and_only_if_it_is_not_there() {
        let both =
            ["https://peer.test/.well-known/agent-card.json", "https://peer.test/.well-known/agent.json"];
        assert_eq!(paths("https://peer.test"), both);
        assert_eq!(paths("https://peer.test/"), both);
        for status in [404, 405, 410] {
            assert!(try_next(status));
        }
        for status in [200, 301, 400, 401, 403, 429, 500, 502, 503] {
            assert!(!try_next(status));
        }
    }

    #[test]
    fn o_card_05_a_prefix_is_tried_before_the_origin_and_never_another_host() {
        assert_eq!(
            paths("https://peer.test/t/one/"),
            [
                "https://peer.test/t/one/.well-known/agent-card.json",
                "https://peer.test/t/one/.well-known/agent.json",
                "https://peer.test/.well-known/agent-card.json",
                "https://peer.test/.well-known/agent.json",
            ]
        );
        for odd in [
            "https://peer.test//other.test/x",
            "https://peer.test/a/../../b",
            "https://peer.test:8443/%2e%2e/",
        ] {
            let given = Url::parse(odd).unwrap();
            for c in card_candidates(odd).unwrap() {
                assert_eq!(c.origin(), given.origin());
            }
        }
    }

    #[test]
    fn a_whole_card_url_is_the_only_one_tried_and_keeps_its_query() {
        assert_eq!(
            paths("https://p.test/a2a/x/.well-known/agent-card.json?v=1#f"),
            ["https://p.test/a2a/x/.well-known/agent-card.json?v=1"]
        );
        assert_eq!(paths("https://p.test/cards/mine.JSON").len(), 1);
        assert_eq!(
            paths("https://p.test/?assistant_id=7")[0],
            "https://p.test/.well-known/agent-card.json?assistant_id=7"
        );
    }

    #[test]
    fn what_no_card_can_be_fetched_from_is_refused() {
        assert_eq!(card_candidates("peer.test"), Err(BadCardUrl::NotAUrl));
        assert_eq!(card_candidates("/a"), Err(BadCardUrl::NotAUrl));
        assert_eq!(card_candidates("file:///etc/passwd"), Err(BadCardUrl::Scheme));
        assert_eq!(card_candidates("https://u:p@peer.test/"), Err(BadCardUrl::UserInfo));
    }
}
