use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::payload::Part;
use crate::workflow::document;

fn template(source: &Value) -> Template {
    let text = source.to_string();
    let node = document::read(&text).unwrap();
    let (mut placed, mut wrong) = (Vec::new(), Vec::new());
    let t = Template::read(&node, "", &mut placed, &mut wrong);
    assert!(wrong.is_empty(), "{source}: {:?}", wrong.first().map(|w| w.bad.to_string()));
    t
}

fn one(expression: &str) -> Template {
    template(&json!(format!("${{{{ {expression} }}}}")))
}

fn step(s: &str) -> StepName {
    s.parse().unwrap()
}

fn input() -> Payload {
    let parts = vec![
        Part::text("héllo"),
        Part::data(json!({
            "i": 1, "d": 1.5, "whole": 2.0, "big": 9_007_199_254_740_992_i64, "t": true, "n": null,
            "s": "x", "list": [1, 2.5, "a"], "deep": { "k": ["v"] }, "key": "i"
        })),
    ];
    Payload { parts, artifacts: Vec::new() }
}

/// What the template gives with the input, a step `done` and a skipped step `gone`.
fn give(t: &Template) -> Result<Value, EvalFault> {
    let (input, output) = (input(), foreign());
    let item = json!({"x": 1});
    let scope = Scope::new(&input, "t-1", "alice")
        .step(step("done"), "completed", Some(&output))
        .step(step("gone"), "skipped", None)
        .item(&item);
    t.value(&scope, Bounds::default()).map_err(|e| e.fault)
}

fn foreign() -> Payload {
    let artifact = crate::payload::Artifact { id: "a1".into(), name: None, first: 0, count: 2 };
    Payload { parts: vec![Part::text("ok"), Part::data(json!({"ok": true}))], artifacts: vec![artifact] }
}

#[test]
fn a_string_that_is_one_expression_keeps_its_json_type() {
    for (source, expected) in [
        ("input.data.i", json!(1)),
        ("input.data.d", json!(1.5)),
        ("input.data.big + 1", json!(9_007_199_254_740_993_i64)),
        ("input.data.t", json!(true)),
        ("input.data.n", json!(null)),
        ("input.data.list", json!([1, 2.5, "a"])),
        ("input.data.list[1]", json!(2.5)),
        ("input.data[input.data.key]", json!(1)),
        ("{'a': input.data.deep, 'b': [1, -2, 1.5]}", json!({"a": {"k": ["v"]}, "b": [1, -2, 1.5]})),
        ("{'a': {'b': 1}}.a.b", json!(1)),
        ("input.text + '!'", json!("héllo!")),
        ("size(input.text)", json!(5)),
        ("input.data.list.size() + size(input.data)", json!(13)),
        ("task.id + '/' + task.requester", json!("t-1/alice")),
        ("item.x", json!(1)),
        ("steps.done.status", json!("completed")),
        ("steps.done.output.data.ok", json!(true)),
        ("steps.gone.output", json!(null)),
        ("steps.gone.status == 'skipped' || steps.gone.output.data.ok", json!(true)),
        ("steps.gone.output.data.ok || true", json!(true)),
        ("steps.gone.output.data.ok && false", json!(false)),
        ("1 + 2 * 3 - 4 / 2 % 3", json!(5)),
        ("7 / 2", json!(3)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("0x1F - -0x1", json!(32)),
        ("1.5e3", json!(1500.0)),
        ("'\\x41\\u00e9\\U0001F680\\101\\n\\'' + \"\\\"'\"", json!("A\u{e9}\u{1F680}A\n'\"'")),
        ("-7 % 3", json!(-1)),
        ("input.data.d * 2", json!(3.0)),
        ("1 < 1.5 && 2 == 2.0 && 'a' < 'b' && !(1 > 2)", json!(true)),
        ("9007199254740993 == double(9007199254740993)", json!(false)),
        ("1 == '1' || [1] == [1.0] && {'a': 1} == {'a': 1}", json!(true)),
        ("1 in [1, 2] && 'i' in input.data && !('zz' in input.data)", json!(true)),
        ("[1] + [2]", json!([1, 2])),
        ("string(1.0) + string(true) + string(3)", json!("1true3")),
        ("int('42') + int(3.9) + int(-3.9)", json!(42)),
        ("double('1.5') + 1", json!(2.5)),
        ("input.text.startsWith('h') && input.text.endsWith('o') && input.text.contains('éll')", json!(true)),
        ("input.data.t ? 'yes' : 'no'", json!("yes")),
    ] {
        assert_eq!(give(&one(source)), Ok(expected), "{source}");
    }
}

#[test]
fn an_expression_without_a_value_says_why_and_never_what() {
    let wrong = |wanted, got| EvalFault::Type { wanted, got };
    for (source, expected) in [
        ("input.data.zz", EvalFault::Missing("member `zz`".into())),
        ("input.data.list[3]", EvalFault::Missing("element 3".into())),
        ("input.data.list[-1]", EvalFault::Missing("element -1".into())),
        ("input.data[input.text]", EvalFault::Missing("such member".into())),
        ("steps.gone.output.data", wrong("an object", "null")),
        ("input.data.i.x", wrong("an object", "a number")),
        ("steps.later.output", EvalFault::Missing("ended step `later`".into())),
        ("1 + 'a'", wrong("a number", "a string")),
        ("true + true", wrong("a number, a string or an array", "a boolean")),
        ("1 < 'a'", wrong("a number", "a string")),
        ("!1", wrong("a boolean", "a number")),
        ("1 ? 2 : 3", wrong("a boolean", "a number")),
        ("1 in 2", wrong("an array or an object", "a number")),
        ("size(1)", wrong("a string, an array or an object", "a number")),
        ("string(null)", wrong("a string, a number or a boolean", "null")),
        ("1 / 0", EvalFault::DivisionByZero),
        ("1.0 / 0", EvalFault::DivisionByZero),
        ("1 % 0", EvalFault::DivisionByZero),
        ("9223372036854775807 + 1", EvalFault::OutOfRange),
        ("-9223372036854775807 - 2", EvalFault::OutOfRange),
        ("1e308 * 10.0", EvalFault::OutOfRange),
        ("int(1e19)", EvalFault::OutOfRange),
        ("int('x')", EvalFault::NotANumber),
        ("double('nan')", EvalFault::NotANumber),
        ("{'a': 1, 'a': 2}", EvalFault::DuplicateMember),
        ("{input.data.i: 1}", wrong("a string", "a number")),
    ] {
        assert_eq!(give(&one(source)), Err(expected), "{source}");
    }
}

#[test]
fn embedded_expressions_must_be_strings_numbers_or_booleans() {
    let t = template(
        &json!({"a": ["n=${{ input.data.i }} d=${{input.data.whole}} ${{ input.data.t }}:${{ input.data.s }}", 1], "${b}": "$ {{ }} ${"}),
    );
    assert_eq!(give(&t), Ok(json!({"a": ["n=1 d=2 true:x", 1], "${b}": "$ {{ }} ${"})));
    for source in ["x ${{ input.data.n }}", "${{ input.data.list }} ", " ${{ input.data.deep }}"] {
        let fault = give(&template(&json!(source))).unwrap_err();
        assert!(matches!(fault, EvalFault::Type { .. }), "{source}: {fault}");
    }
    assert_eq!(give(&template(&json!("${{ '}}' }}${{ '${{' }}"))), Ok(json!("}}${{")));
    assert_eq!(give(&template(&json!("${{{'a':{'b':1}}}}"))), Ok(json!({"a": {"b": 1}})));
}

#[test]
fn a_condition_must_be_a_boolean_and_a_list_an_array() {
    let payload = input();
    let scope = Scope::new(&payload, "t", "r");
    assert_eq!(one("input.data.t").holds(&scope, Bounds::default()), Ok(true));
    let error = one("input.data.i").holds(&scope, Bounds::default()).unwrap_err();
    assert_eq!(error.to_string(), "`input.data.i`: a boolean was needed, got a number");
    assert_eq!(one("input.data.list").list(&scope, Bounds::default()).unwrap().len(), 3);
    assert!(one("input.data").list(&scope, Bounds::default()).is_err());
}

#[test]
fn a_payload_that_is_handed_on_keeps_its_parts() {
    let (payload, output) = (input(), foreign());
    let scope = Scope::new(&payload, "t", "r").step(step("a"), "completed", Some(&output)).step(
        step("gone"),
        "skipped",
        None,
    );
    let of = |source: Value| template(&source).payload(&scope, Bounds::default(), &Limits::default());
    assert_eq!(of(json!("${{ input }}")), Ok(payload.clone()));
    assert_eq!(of(json!("${{ steps.a.output }}")).unwrap().parts, output.parts);
    assert_eq!(of(json!("${{ true ? steps.a.output : input }}")).unwrap().parts, output.parts);
    assert_eq!(of(json!("${{ steps.gone.output }}")), Ok(Payload::of_data(Value::Null)));
    assert_eq!(of(json!("hi ${{ input.data.s }}")), Ok(Payload::of_text("hi x")));
    let both = of(json!({"text": "t", "data": "${{ steps.a.output.data }}"})).unwrap();
    assert_eq!(both.parts, [Part::text("t"), Part::data(json!({"ok": true}))]);
    let error = of(json!("${{ input.data.big + 1 }}")).unwrap_err();
    assert!(matches!(error.fault, EvalFault::NotAPayload(_)), "{error}");
    let tight = Limits { bytes: 10, ..Limits::default() };
    assert!(one("input").payload(&scope, Bounds::default(), &tight).is_err());
}

#[test]
fn a_template_names_what_its_label_joins() {
    let t = template(
        &json!({"a": "${{ steps.x.output.text }} ${{ steps['y'].status }}", "b": "${{ input.data.t ? steps.z.output : 1 }}"}),
    );
    assert_eq!(t.steps(), [step("x"), step("y"), step("z")].into());
    assert!(t.sources().contains(&Source::Input));
    assert!(template(&json!("plain")).sources().is_empty());
}

#[test]
fn work_and_results_are_bounded() {
    let payload = Payload::of_text("x".repeat(1 << 19));
    let scope = Scope::new(&payload, "t", "r");
    let fault = |t: &Template, bounds| t.value(&scope, bounds).unwrap_err().fault;
    let sums = one(&["input.text"; 60].join(" + "));
    assert_eq!(fault(&sums, Bounds::default()), EvalFault::OutOfSteps);
    let double = one("input.text + input.text");
    let small = Bounds { output_bytes: 1 << 20, ..Bounds::default() };
    assert!(double.value(&scope, Bounds::default()).is_ok());
    assert_eq!(fault(&double, small), EvalFault::TooLarge(1 << 20));
    let copies = template(&Value::from(vec!["${{ input.text }}"; 3]));
    assert_eq!(fault(&copies, small), EvalFault::TooLarge(1 << 20));
    assert_eq!(fault(&one("1 + 1"), Bounds { steps: 2, ..Bounds::default() }), EvalFault::OutOfSteps);
    let or = one("input.text + input.text == '' || true");
    assert_eq!(fault(&or, Bounds { steps: 1 << 19, ..Bounds::default() }), EvalFault::OutOfSteps);
}

/// Expressions over literals, of the part of CEL that doesn't mix integers with doubles.
fn literal_expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (-9..10i64).prop_map(|i| i.to_string()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        "[a-c]{0,2}".prop_map(|s| format!("'{s}'")),
        Just("1.5".to_owned()),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        let op =
            prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||"]);
        prop_oneof![
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} in [{b}, {a}])")),
            inner.clone().prop_map(|a| format!("size([{a}])")),
            inner.prop_map(|a| format!("[{a}][0]")),
        ]
    })
}

fn soup_token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "1",
        "2",
        "'a'",
        "input",
        ". text",
        "true",
        "null",
        "+",
        "-",
        "*",
        "==",
        "<",
        "in",
        "&&",
        "||",
        "!",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        "size (",
        ". contains (",
        "{ 'a' : 1 }",
        "[ 1 , ]",
    ])
}

fn as_json(v: &cel::Value) -> Option<Value> {
    Some(match v {
        cel::Value::Int(i) => json!(i),
        cel::Value::Float(d) => json!(d),
        cel::Value::Bool(b) => json!(b),
        cel::Value::String(s) => json!(**s),
        cel::Value::Null => Value::Null,
        _ => return None,
    })
}

proptest! {
    /// Where the `cel` crate's own interpreter finds a value, so do we, and the same one.
    #[test]
    fn a_value_is_what_cel_says(source in literal_expression()) {
        let Ok(ours) = Expression::parse(&source) else { return Ok(()) };
        let tree = cel::parser::Parser::new().parse(&source).unwrap();
        let context = cel::Context::default();
        if let Some(theirs) = cel::Value::resolve(&tree, &context).ok().and_then(|v| as_json(&v)) {
            prop_assert_eq!(give(&Template::of(ours)), Ok(theirs), "{}", source);
        }
    }

    /// What we take for an expression, the `cel` crate does too; and the other way round, but for what we
    /// refuse on purpose: names, numbers of arguments, names of members that
    /// aren't strings, a dot after a number or nothing.
    #[test]
    fn the_grammar_is_that_of_cel(soup in proptest::collection::vec(soup_token(), 1..12)) {
        let source = soup.join(" ");
        let theirs = cel::parser::Parser::new().parse(&source);
        let stricter = [" works on ", "must be a string", "needs a value before it"];
        match Expression::parse(&source) {
            Ok(_) => prop_assert!(theirs.is_ok(), "{}: we took it", source),
            Err(bad) if bad.code == FaultCode::UnknownName => {}
            Err(bad) if stricter.iter().any(|m| bad.message.contains(m)) => {}
            Err(bad) => prop_assert!(theirs.is_err(), "{}: {}", source, bad),
        }
    }

    #[test]
    fn any_json_without_expressions_is_itself(v in "[ -#%-~]{0,20}", n in any::<i32>(), d in -1e9..1e9f64) {
        let source = json!({"v": v, "n": [n, {"d": d}], "e": {}});
        prop_assert_eq!(give(&template(&source)), Ok(source));
    }
}
