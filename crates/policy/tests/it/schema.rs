//! JSON Schemas: what they accept, what is refused of them, and what they cost.

use exeat_policy::json_schema::{SchemaCheck, SchemaFault};
use proptest::prelude::*;
use serde_json::{Value, json};

fn compiled(schema: &Value) -> SchemaCheck {
    SchemaCheck::compile(schema).unwrap_or_else(|fault| panic!("{fault}\n{schema}"))
}

fn refused(schema: &Value) -> SchemaFault {
    match SchemaCheck::compile(schema) {
        Ok(_) => panic!("accepted: {schema:.200}"),
        Err(fault) => fault,
    }
}

#[test]
fn an_instance_that_fits_passes_and_one_that_does_not_is_told_where() {
    let check = compiled(&json!({
        "type": "object", "required": ["ok"],
        "properties": { "ok": { "type": "boolean" }, "lines": { "type": "array", "items": { "type": "integer" } } },
    }));
    assert_eq!(check.check(&json!({ "ok": true, "lines": [1, 2] })), Ok(()));
    let mismatches = check.check(&json!({ "lines": [1, "x", 2.5] })).unwrap_err();
    let pointers: Vec<_> = mismatches.iter().map(|m| m.pointer.as_str()).collect();
    assert!(
        pointers.contains(&"") && pointers.contains(&"/lines/1") && pointers.contains(&"/lines/2"),
        "{pointers:?}"
    );
}

#[test]
fn the_draft_is_2020_12() {
    let check = compiled(&json!({ "prefixItems": [{ "type": "string" }], "items": false }));
    assert!(check.check(&json!(["a"])).is_ok());
    assert!(check.check(&json!(["a", 1])).is_err());
    compiled(
        &json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://x.example/s" }),
    );
    compiled(&json!(true));
    assert!(compiled(&json!(false)).check(&json!(null)).is_err());
    assert_eq!(refused(&json!({ "$schema": "http://json-schema.org/draft-04/schema#" })).pointer, "/$schema");
}

#[test]
fn local_definitions_are_followed() {
    let check = compiled(&json!({
        "$defs": { "money": { "type": "integer", "minimum": 0 }, "a/b~c": { "type": "string" } },
        "properties": { "net": { "$ref": "#/$defs/money" }, "gross": { "$ref": "#/$defs/money" },
                        "odd": { "$ref": "#/$defs/a~1b~0c" }, "same": { "$ref": "#/properties/net" } },
    }));
    assert!(check.check(&json!({ "net": 1, "gross": 2, "odd": "x", "same": 3 })).is_ok());
    for bad in [json!({ "net": -1 }), json!({ "odd": 1 }), json!({ "same": "x" })] {
        assert!(check.check(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_reference_out_of_the_document_or_into_nothing_is_refused_where_it_stands() {
    for target in [
        "https://example.com/schema.json",
        "http://127.0.0.1/x",
        "file:///etc/passwd",
        "other.json#/$defs/a",
        "//example.com/x",
        "https://json-schema.org/draft/2020-12/schema",
        "#anchor",
        "urn:x",
        "#/$defs/none",
        "#/%24defs/a",
    ] {
        let fault = refused(&json!({ "properties": { "a/b": { "$ref": target } }, "$defs": { "a": {} } }));
        assert_eq!(fault.pointer, "/properties/a~1b/$ref", "{target}");
        assert!(fault.message.contains("$ref"), "{fault}");
    }
    for keyword in ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"] {
        let fault = refused(&json!({ "allOf": [{ keyword: "#a" }] }));
        assert_eq!(fault.pointer, format!("/allOf/0/{keyword}"));
    }
    assert_eq!(refused(&json!({ "items": { "$id": "https://x.example/y" } })).pointer, "/items/$id");
}

#[test]
fn a_property_may_be_named_like_a_keyword() {
    let check = compiled(&json!({
        "properties": { "$ref": { "type": "string" }, "$anchor": { "type": "string" }, "$id": {} },
        "const": { "$ref": "https://example.com", "$id": "x" },
    }));
    assert!(check.check(&json!({ "$ref": "https://example.com", "$id": "x" })).is_ok());
}

#[test]
fn a_schema_without_an_end_is_refused() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "properties": { "child": { "$ref": "#" } } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } } }),
        json!({ "properties": { "a": { "items": { "$ref": "#/properties/a" } } } }),
        json!({ "properties": { "a": { "not": { "$ref": "#/properties/a" } } } }),
    ] {
        assert!(refused(&schema).message.contains("itself"), "{schema}");
    }
}

#[test]
fn a_small_schema_that_is_large_when_written_out_is_refused() {
    let mut defs = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        defs.insert(format!("d{n}"), json!({ "allOf": [next, next] }));
    }
    defs.insert("d40".to_owned(), json!({ "type": "string" }));
    let fault = refused(&json!({ "$ref": "#/$defs/d0", "$defs": defs }));
    assert!(fault.message.contains("written out"), "{fault}");
}

#[test]
fn bounds_hold_on_bytes_depth_and_patterns() {
    let nested = |n: usize| (0..n).fold(json!({}), |inner, _| json!({ "items": inner }));
    compiled(&nested(60));
    assert!(refused(&nested(70)).message.contains("deep"));
    // Dropping what is this deep would itself overflow.
    let bottomless = (0..100_000).fold(json!({}), |inner, _| Value::Array(vec![inner]));
    assert!(refused(&bottomless).message.contains("deep"));
    std::mem::forget(bottomless);
    assert!(refused(&json!({ "description": "x".repeat(70_000) })).message.contains("bytes"));
    let patterns: serde_json::Map<String, Value> = (0..200).map(|n| (format!("^p{n}$"), json!({}))).collect();
    assert!(refused(&json!({ "patternProperties": patterns })).message.contains("patterns"));
}

#[test]
fn patterns_are_linear_and_bounded() {
    let check = compiled(&json!({ "pattern": "^(a+)+$" }));
    assert!(check.check(&json!(format!("{}!", "a".repeat(100_000)))).is_err());
    for pattern in ["(?=a)b", r"(a)\1", "(?<!a)b", "((a{1,1000}){1,1000}){1,1000}", "["] {
        let fault = refused(&json!({ "properties": { "x": { "pattern": pattern } } }));
        assert!(fault.pointer.starts_with("/properties/x"), "{fault:?}");
    }
    refused(&json!({ "patternProperties": { "(?=a)": {} } }));
}

#[test]
fn a_schema_that_is_not_one_is_refused_with_its_place() {
    for (schema, pointer) in [
        (json!({ "type": "strnig" }), "/type"),
        (json!({ "properties": { "a": { "minimum": "1" } } }), "/properties/a/minimum"),
        (json!({ "required": "a" }), "/required"),
        (json!([]), ""),
        (json!("x"), ""),
        (json!(1), ""),
        (json!(null), ""),
    ] {
        let fault = refused(&schema);
        assert_eq!(fault.pointer, pointer, "{fault}");
        assert!(!fault.message.is_empty());
    }
}

#[test]
fn mismatches_are_few_short_and_never_quote_the_instance() {
    let check = compiled(&json!({
        "items": { "type": "integer" }, "maxItems": 3,
        "contains": { "const": 7 },
    }));
    let secret = "SECRET".repeat(1000);
    let mismatches = check.check(&json!(vec![secret.clone(); 500])).unwrap_err();
    assert!(mismatches.len() <= 20 && !mismatches.is_empty());
    for mismatch in &mismatches {
        assert!(mismatch.message.chars().count() <= 301, "{mismatch:?}");
        assert!(!mismatch.message.contains("SECRET"), "{mismatch:?}");
    }
    let kinds = json!({ "anyOf": [{ "type": "string", "maxLength": 3 }, { "enum": [1] }], "not": { "minLength": 1 },
        "pattern": "^x", "additionalProperties": false, "propertyNames": { "maxLength": 2 }, "uniqueItems": true,
        "minProperties": 9, "dependentRequired": { "SECRET": ["b"] }, "multipleOf": 2, "maximum": 0 });
    let check = compiled(&kinds);
    for instance in [json!(secret), json!({ "SECRET": "SECRET" }), json!(["SECRET", "SECRET"]), json!(31337)]
    {
        for mismatch in check.check(&instance).unwrap_err() {
            assert!(
                !mismatch.message.contains("SECRET") && !mismatch.message.contains("31337"),
                "{mismatch:?}"
            );
        }
    }
}

#[test]
fn a_deep_instance_is_a_mismatch_and_no_overflow() {
    let deep = (0..100_000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let mismatches = compiled(&json!({ "items": { "type": "array" } })).check(&deep).unwrap_err();
    assert!(mismatches[0].message.contains("deeper"), "{mismatches:?}");
    // Dropping what is this deep would itself overflow.
    std::mem::forget(deep);
}

#[test]
fn unevaluated_keywords_nest_only_a_little_for_each_doubles_the_work() {
    let nested = |n: usize| {
        (0..n).fold(
            json!({ "properties": { "a": { "type": "integer" } } }),
            |inner, _| json!({ "anyOf": [inner], "unevaluatedProperties": false }),
        )
    };
    let check = compiled(&nested(2));
    assert!(check.check(&json!({ "a": 1 })).is_ok());
    assert!(check.check(&json!({ "b": 1 })).is_err());
    assert!(refused(&nested(3)).message.contains("unevaluated"));
}

#[test]
fn what_would_take_too_long_to_check_is_a_mismatch() {
    let many: Vec<Value> = (0..2_000).map(|n| json!({ "minimum": -n })).collect();
    let check = compiled(&json!({ "items": { "allOf": many } }));
    assert!(check.check(&json!(vec![1; 1_000])).is_ok());
    let mismatches = check.check(&json!(vec![1; 400_000])).unwrap_err();
    assert!(mismatches[0].message.contains("too large"), "{mismatches:?}");
    let large = compiled(&json!({ "items": { "type": "object", "required": ["a"] } }));
    assert!(large.check(&json!(vec![json!({ "a": "x" }); 100_000])).is_ok());
}

#[test]
fn what_would_take_too_much_room_to_explain_is_told_without_detail() {
    let many: Vec<Value> = (0..2_000).map(|n| json!({ "maxLength": n })).collect();
    let check = compiled(&json!({ "anyOf": many }));
    let short = check.check(&json!("x".repeat(3_000))).unwrap_err();
    assert!(short[0].message.contains("anyOf"), "{short:?}");
    let long = check.check(&json!("x".repeat(1_000_000))).unwrap_err();
    assert_eq!((long.len(), long[0].message.as_str()), (1, "doesn't meet its schema"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        any::<String>(),
        Just("$ref".to_owned()),
        Just("#".to_owned()),
        Just("#/items".to_owned()),
        Just("items".to_owned()),
        Just("type".to_owned()),
        Just("allOf".to_owned()),
        Just("$defs".to_owned()),
        Just("pattern".to_owned()),
        Just("properties".to_owned()),
        Just("not".to_owned()),
        Just("string".to_owned()),
        Just("required".to_owned()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word.clone(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_schema_and_any_instance_give_an_answer_and_always_the_same(schema in any_json(), instance in any_json()) {
        match SchemaCheck::compile(&schema) {
            Err(fault) => prop_assert!(!fault.message.is_empty()),
            Ok(check) => {
                let answer = check.check(&instance);
                prop_assert_eq!(&answer, &check.check(&instance));
                if let Err(mismatches) = answer {
                    prop_assert!((1..=20).contains(&mismatches.len()));
                }
            }
        }
    }
}
