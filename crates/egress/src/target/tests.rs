use proptest::prelude::*;

use super::*;

fn entry(url: &str) -> Entry {
    let registered = url.parse::<Target>().unwrap().origin().clone();
    let plaintext = match registered.scheme() {
        Scheme::Http => Plaintext::Allowed,
        Scheme::Https => Plaintext::Refused,
    };
    Entry { registered, origins: vec![], plaintext, networks: vec![] }
}

#[test]
fn a_url_is_normalised_once_and_keeps_its_path_and_query() {
    for (text, origin, path) in [
        ("https://peer.test", "https://peer.test", "/"),
        ("HTTPS://PEER.Test:443/A/b?x=1", "https://peer.test", "/A/b?x=1"),
        ("https://peer.test:8443/", "https://peer.test:8443", "/"),
        ("http://peer.test:80/x", "http://peer.test", "/x"),
        ("https://b\u{fc}cher.test/", "https://xn--bcher-kva.test", "/"),
        ("https://peer.test/a/../b", "https://peer.test", "/b"),
        ("https://127.0.0.1:9/", "https://127.0.0.1:9", "/"),
        ("https://[2001:DB8:0:0::1]/", "https://[2001:db8::1]", "/"),
        ("https://peer.test/n\u{e4}h", "https://peer.test", "/n%C3%A4h"),
    ] {
        let t: Target = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((t.origin().to_string().as_str(), t.path_and_query().as_str()), (origin, path), "{text}");
        assert_eq!(t.to_string().parse::<Target>().as_ref(), Ok(&t));
    }
}

/// O-SSRF-03
#[test]
fn other_spellings_of_ipv4_are_refused_even_where_loopback_is_listed() {
    for text in [
        "http://2852039166/",
        "http://0xA9FEA9FE/",
        "http://0251.0376.0251.0376/",
        "http://169.254.43518/",
        "http://127.1/",
        "http://017700000001/",
        "http://0x7f.1/",
        "http://127.0.0.01/",
        "http://0/",
        "http://\u{ff11}27.0.0.1/",
        "http://127\u{3002}0.0.1/",
        "http://%31%32%37.0.0.1/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
    ] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
}

/// O-SSRF-06
#[test]
fn what_two_parsers_could_read_differently_is_refused_before_any_lookup() {
    for (text, why) in [
        ("http://127.0.0.1:6666\\@peer.test/", BadUrl::OddCharacter),
        ("https://peer.test\\@other.test/", BadUrl::OddCharacter),
        ("https://peer\t.test/", BadUrl::OddCharacter),
        ("https://peer\r.test/", BadUrl::OddCharacter),
        ("https://peer\n.test/", BadUrl::OddCharacter),
        (" https://peer.test/", BadUrl::OddCharacter),
        ("https://peer.test/\u{0}", BadUrl::OddCharacter),
        ("https://user@peer.test/", BadUrl::Userinfo),
        ("https://user:pw@peer.test/", BadUrl::Userinfo),
        ("https://@peer.test/", BadUrl::Userinfo),
        ("https://peer.test#@other.test/", BadUrl::Fragment),
        ("https://peer.test/#x", BadUrl::Fragment),
        ("https://peer%2etest/", BadUrl::Host),
        ("https://peer.test:/", BadUrl::Port),
        ("https://peer.test:0/", BadUrl::Port),
        ("https://peer.test:443:80/", BadUrl::Port),
        ("https://peer.test:+443/", BadUrl::Port),
        ("https://peer..test/", BadUrl::Host),
        ("https://peer.test../", BadUrl::Host),
    ] {
        assert_eq!(text.parse::<Target>(), Err(why), "{text:?}");
    }
    for text in
        ["https://peer.test:99999/", "https:///x", "https://", "https://?x", "https://[::1", "https://a b/"]
    {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
    let long = format!("https://peer.test/{}", "x".repeat(3000));
    assert_eq!(long.parse::<Target>(), Err(BadUrl::TooLong));
}

/// O-SSRF-07
#[test]
fn origins_are_compared_whole_and_never_by_suffix_or_prefix() {
    let platform = Platform::default();
    let e = entry("https://peer.test");
    assert!(platform.clear(&e, "https://PEER.TEST/x").is_ok());
    for text in [
        "https://notpeer.test/",
        "https://peer.test.evil.test/",
        "https://sub.peer.test/",
        "https://peer.test:8443/",
        "http://peer.test/",
        "https://peer.tes/",
    ] {
        assert!(platform.clear(&e, text).is_err(), "{text}");
    }
    let listed = Entry { origins: vec!["https://sub.peer.test".parse().unwrap()], ..e };
    assert!(platform.clear(&listed, "https://sub.peer.test/").is_ok());
}

#[test]
fn the_platforms_origins_bind_whatever_the_entry_lists() {
    let listed = Origins::parse(&["https://peer.test", "https://two.test."]).unwrap();
    let platform = Platform { origins: listed, ..Platform::default() };
    let e = Entry { origins: vec!["https://other.test".parse().unwrap()], ..entry("https://peer.test") };
    assert!(platform.clear(&e, "https://peer.test/").is_ok());
    assert_eq!(
        platform.clear(&e, "https://other.test/"),
        Err(TargetRefused::Platform("https://other.test".parse().unwrap()))
    );
    assert!(platform.admits(&e).is_err());
    assert!(platform.admits(&entry("https://two.test")).is_ok());
    assert!(Origins::parse(&["*", "https://peer.test"]).is_err());
    assert!(Origins::parse(&["peer.test"]).is_err() && Origins::parse(&["https://*.test"]).is_err());
    assert_eq!(Origins::parse::<&str>(&[]), Ok(Origins::Listed(vec![])));
}

/// O-SSRF-08
#[test]
fn a_trailing_dot_changes_nothing_on_either_side() {
    let platform = Platform::default();
    assert!(platform.clear(&entry("https://peer.test"), "https://peer.test./").is_ok());
    assert!(platform.clear(&entry("https://peer.test."), "https://peer.test/").is_ok());
    let t: Target = "http://169.254.169.254./".parse().unwrap();
    assert_eq!(*t.origin().host(), Host::Address("169.254.169.254".parse().unwrap()));
    let t: Target = "http://localhost./".parse().unwrap();
    assert_eq!(*t.origin().host(), Host::Name("localhost".into()));
}

/// O-SSRF-10
#[test]
fn zone_ids_are_refused() {
    for text in ["https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::1%251]/"] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
}

/// O-SSRF-13
#[test]
fn other_schemes_are_refused_and_http_needs_the_entrys_word() {
    for text in [
        "file:///example-card.json",
        "htp://peer.test/card.json",
        "ftp://peer.test/",
        "gopher://peer.test/",
        "card.json",
        "/card.json",
        "//peer.test/",
        "https:peer.test",
        "https:/peer.test",
        "javascript:1",
        "ws://peer.test/",
        "blob:https://peer.test/x",
        "",
    ] {
        assert!(matches!(text.parse::<Target>(), Err(BadUrl::Scheme)), "{text}");
    }
    let plain = entry("http://peer.test");
    assert!(Platform::default().clear(&plain, "http://peer.test/").is_ok());
    let strict = Entry { plaintext: Plaintext::Refused, ..plain };
    assert!(matches!(
        Platform::default().clear(&strict, "http://peer.test/"),
        Err(TargetRefused::Plaintext(_))
    ));
}

#[test]
fn tls_targets_keep_to_the_port_list_and_plaintext_entries_may_use_any_port() {
    let platform = Platform::default();
    assert!(matches!(
        platform.clear(&entry("https://peer.test:8443"), "https://peer.test:8443/"),
        Err(TargetRefused::Port(_))
    ));
    assert!(platform.clear(&entry("http://peer.test:9999"), "http://peer.test:9999/rpc").is_ok());
    let wider = Platform { ports: vec![443, 8443], ..platform };
    assert!(wider.clear(&entry("https://peer.test:8443"), "https://peer.test:8443/").is_ok());
}

#[test]
fn another_path_stays_on_the_origin() {
    let t: Target = "https://peer.test/a2a".parse().unwrap();
    let card = t.with_path("/.well-known/agent-card.json").unwrap();
    assert_eq!(card.to_string(), "https://peer.test/.well-known/agent-card.json");
    for bad in ["//evil.test/", "@evil.test/", ".evil.test/", ":80/", "", "/\\evil.test"] {
        assert!(t.with_path(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics_and_what_passes_prints_to_what_parses_the_same(text in "\\PC{0,60}") {
        let _ = text.parse::<Target>();
        if let Ok(t) = format!("https://{text}").parse::<Target>() {
            prop_assert_eq!(t.to_string().parse::<Target>(), Ok(t));
        }
    }

    #[test]
    fn nothing_but_the_registered_origin_clears(host in "[a-z0-9.@:\\\\/#?%-]{1,24}") {
        let e = entry("https://peer.test");
        if let Ok(t) = Platform::default().clear(&e, &format!("https://{host}")) {
            prop_assert_eq!(t.origin(), &e.registered);
        }
    }
}
