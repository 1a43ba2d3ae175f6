//! No bytes of a stranger make a reader panic, and none of them become a success by accident.

use exeat_core::payload::{Limits as PayloadLimits, Payload};
use exeat_wire::answer::{SendAnswer, list_answer, send_answer, task_answer};
use exeat_wire::card::{Card, card_candidates};
use exeat_wire::{Limits, ProtocolPin, push};
use proptest::prelude::*;
use serde_json::{Value, json};

fn every_reader(bytes: &[u8]) {
    let limits = Limits::default();
    if let Ok(card) = Card::parse(bytes, &limits) {
        let _ = (card.projection(), card.choose(ProtocolPin::Auto));
    }
    let _ = (send_answer(bytes, &limits), task_answer(bytes, &limits), list_answer(bytes, &limits));
    if let Ok(push) = push::event(bytes, &limits) {
        let _ = (push.names_task().map(str::len), push.claims());
    }
}

/// JSON out of the words that the readers look for, so that they get past their first check.
fn a2a_like() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "result",
        "error",
        "task",
        "message",
        "statusUpdate",
        "artifactUpdate",
        "kind",
        "id",
        "taskId",
        "contextId",
        "status",
        "state",
        "parts",
        "artifacts",
        "history",
        "role",
        "text",
        "data",
        "raw",
        "url",
        "file",
        "bytes",
        "metadata",
        "data_part_compat",
        "value",
        "final",
        "artifact",
        "tasks",
        "code",
        "reason",
        "supportedInterfaces",
        "protocolBinding",
        "protocolVersion",
        "name",
        "skills",
        "capabilities",
        "securitySchemes",
        "signatures",
        "protected",
        "jsonrpc",
    ]);
    let words = prop::sample::select(vec![
        "",
        "task",
        "message",
        "status-update",
        "completed",
        "TASK_STATE_WORKING",
        "failed",
        "agent",
        "ROLE_USER",
        "JSONRPC",
        "1.0",
        "0.3.0",
        "https://peer.test/",
        "aGk=",
        "e30",
        "t1",
        "\u{202E}x",
    ]);
    let leaf = prop_oneof![
        words.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_any_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        every_reader(&bytes);
    }

    #[test]
    fn no_object_makes_any_reader_panic(v in a2a_like(), cut in 0.0..1.0_f64) {
        let body = v.to_string().into_bytes();
        every_reader(&body);
        every_reader(&json!({ "result": v }).to_string().into_bytes());
        let end = (body.len() as f64 * cut) as usize;
        every_reader(&body[..end]);
    }

    #[test]
    fn whatever_is_read_as_output_has_payload_bytes_that_read_back_equal(v in a2a_like()) {
        let body = json!({"result":{"id":"t","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"data":v}, v]}]}}).to_string();
        let Ok(SendAnswer::Task(t)) = send_answer(body.as_bytes(), &Limits::default()) else { panic!("no task") };
        let out = t.output();
        prop_assert!(out.check(&PayloadLimits::default()).is_ok());
        prop_assert_eq!(out.parts.len(), 2);
        let back = Payload::from_bytes(&out.bytes()).unwrap();
        prop_assert_eq!(&back.parts, &out.parts);
        prop_assert_eq!(back.bytes(), out.bytes());
    }

    #[test]
    fn no_text_makes_card_addresses_panic_or_leave_their_host(s in ".{0,60}", host in "[a-z]{1,8}") {
        for given in [s.clone(), format!("https://{host}.test/{s}"), format!("https://{s}")] {
            let Ok(candidates) = card_candidates(&given) else { continue };
            prop_assert!(!candidates.is_empty() && candidates.len() <= 4);
            let home = url::Url::parse(&given).unwrap().origin();
            prop_assert!(candidates.iter().all(|c| c.origin() == home));
        }
    }
}

#[test]
fn a_body_that_is_deep_or_wide_is_refused_before_it_is_built() {
    let deep = |n: usize| {
        format!(r#"{{"result":{{"task":{{"id":"t","metadata":{}{}}}}}}}"#, "[".repeat(n), "]".repeat(n))
    };
    assert!(send_answer(deep(60).as_bytes(), &Limits::default()).is_ok());
    for n in [100, 10_000, 1_000_000] {
        assert!(send_answer(deep(n).as_bytes(), &Limits::default()).is_err());
    }
    let wide = format!(r#"{{"result":{{"task":{{"id":"t","metadata":[{}0]}}}}}}"#, "0,".repeat(300_000));
    let refused = send_answer(wide.as_bytes(), &Limits::default()).unwrap_err();
    assert_eq!(refused.to_string(), "the body holds more than 200000 values");
}

#[test]
fn a_payload_of_the_deepest_kind_that_we_take_fits_into_the_default_depth() {
    let data = (0..64).fold(json!(1), |v, _| json!([v]));
    assert!(Payload::of_data(data.clone()).check(&PayloadLimits::default()).is_ok());
    let body = json!({"result":{"task":{"id":"t","status":{"state":"completed"},"artifacts":[{"parts":[{"data":data}]}]}}});
    assert!(send_answer(body.to_string().as_bytes(), &Limits::default()).is_ok());
}
