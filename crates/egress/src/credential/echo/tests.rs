use proptest::prelude::*;

use super::*;

const SECRET: &str = "p@ss w/rd+\"1<&>\\'=k";

fn echoes(secret: &str) -> Echoes {
    Echoes::of([&SecretString::from(secret)])
}

#[test]
fn each_form_of_a_secret_is_replaced() {
    let units = |upper: bool| {
        SECRET
            .encode_utf16()
            .map(|u| if upper { format!("\\u{u:04X}") } else { format!("\\u{u:04x}") })
            .collect::<String>()
    };
    for (form, what) in [
        (SECRET.to_owned(), "raw"),
        ("p%40ss%20w%2Frd%2B%221%3C%26%3E%5C%27%3Dk".to_owned(), "percent"),
        ("p%40ss%20w%2frd%2b%221%3c%26%3e%5c%27%3dk".to_owned(), "percent, lower case"),
        ("p%40ss%20w%2Frd%2B%221%3C%26%3E%5C'%3Dk".to_owned(), "percent, as scripts do"),
        ("p%40ss+w%2Frd%2B%221%3C%26%3E%5C%27%3Dk".to_owned(), "form"),
        (STANDARD.encode(SECRET), "base64"),
        (STANDARD_NO_PAD.encode(SECRET), "base64, no padding"),
        (URL_SAFE.encode(SECRET), "base64url"),
        (URL_SAFE_NO_PAD.encode(SECRET), "base64url, no padding"),
        (r#"p@ss w/rd+\"1<&>\\'=k"#.to_owned(), "JSON"),
        (r#"p@ss w\/rd+\"1<&>\\'=k"#.to_owned(), "JSON, solidus"),
        (r#"p@ss w/rd\u002b\"1\u003c\u0026\u003e\\\u0027=k"#.to_owned(), "JSON, for HTML"),
        (r#"p@ss w/rd\u002B\"1\u003C\u0026\u003E\\\u0027=k"#.to_owned(), "JSON, for HTML, upper case"),
        (units(false), "JSON, all escaped"),
        (units(true), "JSON, all escaped, upper case"),
    ] {
        let text = format!("before {form} after {form}.");
        assert_eq!(echoes(SECRET).scrub_text(&text), "before [secret] after [secret].", "{what}");
    }
}

#[test]
fn a_secret_inside_a_longer_base64_text_is_cut_out_at_any_offset() {
    let secret = "sk-0123456789abcdef";
    for before in ["", "a", "ab", "abc", "user:"] {
        for after in ["", "x", "xy", "xyz"] {
            let text = STANDARD.encode(format!("{before}{secret}{after}"));
            let out = echoes(secret).scrub_text(&text);
            assert!(out.contains(MASK), "{before} {after}: {out}");
        }
    }
}

#[test]
fn what_holds_no_secret_is_handed_back_as_it_is() {
    let bytes = Bytes::from_static(b"\xff\xfe nothing here");
    assert_eq!(echoes(SECRET).scrub(bytes.clone()), bytes);
    assert_eq!(Echoes::default().scrub_text("abc"), "abc");
    assert_eq!(format!("{:?}", echoes("abc")).find("abc"), None);
}

#[test]
fn the_longer_of_two_secrets_is_taken_whole() {
    let e = Echoes::of([&SecretString::from("abc"), &SecretString::from("abcdef")]);
    assert_eq!(e.scrub_text("abcdef abc"), "[secret] [secret]");
}

proptest! {
    #[test]
    fn no_text_keeps_a_secret(secret in "[ -~]{6,40}", before in "[ -~]{0,20}", after in "[ -~]{0,20}") {
        prop_assume!(!MASK.contains(&secret));
        let e = echoes(&secret);
        let out = e.scrub_text(&format!("{before}{secret}{after}"));
        prop_assert!(out.contains(MASK));
        let json = serde_json::json!({ "message": secret }).to_string();
        let out = e.scrub_text(&json);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        prop_assert_eq!(&value["message"], MASK);
    }
}
