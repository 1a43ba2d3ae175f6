use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::workflow::reading::STEP_MEMBERS;
use crate::workflow::{Ask, Source, WorkflowRef};

const EXAMPLE: &str = r#"name: invoice-check
steps:
  draft:   { to: role:writer, input: "${{ input }}" }
  audit:
    to: agent:auditor
    needs: [draft]
    skill: review-invoice
    input: { text: "Review this invoice: ${{ steps.draft.output.text }}", data: "${{ steps.draft.output.data }}" }
    output_schema: { type: object, required: [ok], properties: { ok: { type: boolean } } }
    deadline: 2h
    on_input_required: ask          # or fail
  publish: { to: role:publisher, needs: [audit], when: "${{ steps.audit.output.data.ok }}", input: "${{ steps.audit.output }}" }
output: "${{ steps.publish.output }}"
"#;

fn parse(text: &str) -> Result<Workflow, Vec<Fault>> {
    Workflow::parse(text, &Levels::default())
}

fn name(s: &str) -> StepName {
    s.parse().unwrap()
}

/// Code, line, column, pointer of each fault.
fn faults(text: &str) -> Vec<(FaultCode, u32, u32, String)> {
    let faults = parse(text).expect_err(text);
    faults.into_iter().map(|f| (f.code, f.line, f.column, f.pointer)).collect()
}

#[test]
fn the_example_reads_whole() {
    let w = parse(EXAMPLE).unwrap();
    assert_eq!(w.name.as_str(), "invoice-check");
    assert_eq!(w.steps.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["draft", "audit", "publish"]);
    let audit = w.step(&name("audit")).unwrap();
    assert_eq!(audit.to.to_string(), "agent:auditor");
    assert_eq!(audit.needs, [name("draft")]);
    assert_eq!(audit.skill.as_deref(), Some("review-invoice"));
    assert_eq!(audit.deadline, "2h".parse().ok());
    assert_eq!(audit.on_input_required, Ask::Ask);
    assert_eq!(audit.output_schema.as_ref().unwrap()["required"], json!(["ok"]));
    assert_eq!(audit.input.steps(), [name("draft")].into());
    let publish = w.step(&name("publish")).unwrap();
    assert_eq!(publish.sources(), [Source::Step(name("audit"))].into());
    assert_eq!(w.step(&name("draft")).unwrap().sources(), [Source::Input].into());
    assert_eq!(w.before(&name("publish")), [name("draft"), name("audit")].into());
    assert_eq!(w.output.as_ref().unwrap().steps(), [name("publish")].into());
    let endpoints: Vec<String> = w.endpoints().iter().map(ToString::to_string).collect();
    assert_eq!(endpoints, ["role:publisher", "role:writer", "agent:auditor"]);
    assert_eq!(w.source(), EXAMPLE);
}

#[test]
fn every_member_has_its_place() {
    let w = parse(
        "name: full\nversion: 2\ndescription: All of it\ninput_schema: { type: object }\nlabel: internal+eu\n\
         deadline: 7d\nbudget_microusd: 5000000\nmax_hops: 12\nsteps:\n  a:\n    to: role:a\n    label: confidential\n    \
         retry: 3\n    fallback: agent:b\n    may: [agent:c, role:d]\n    on_input_required: fail\n  b:\n    to: team:b\n    \
         needs: [a]\n    for_each: { in: \"${{ input.data.list }}\", max: 5 }\n    retry: { attempts: 2, backoff: 10s }\n",
    )
    .unwrap();
    assert_eq!((w.version, w.max_hops, w.budget_microusd), (Some(2), Some(12), Some(5_000_000)));
    assert_eq!(w.label.as_deref(), Some("internal+eu"));
    let a = w.step(&name("a")).unwrap();
    assert_eq!(a.retry.unwrap().attempts, 3);
    assert_eq!(a.on_input_required, Ask::Fail);
    assert_eq!(a.may.as_ref().unwrap().len(), 2);
    assert_eq!(a.input.source(), &json!("${{ input }}"));
    let b = w.step(&name("b")).unwrap();
    assert_eq!(b.for_each.as_ref().unwrap().max, 5);
    assert_eq!(b.input.source(), &json!("${{ item }}"));
    assert_eq!(b.retry.unwrap().backoff, "10s".parse().ok());
    assert_eq!(w.output.as_ref().unwrap().source(), &json!("${{ steps.b.output }}"));
}

#[test]
fn an_omitted_input_is_the_one_need_or_the_tasks_input() {
    let w = parse("name: x\nsteps: {a: {to: role:a}, b: {to: role:b, needs: [a]}, c: {to: role:c}}").unwrap();
    let input = |s| w.step(&name(s)).unwrap().input.source().clone();
    assert_eq!(input("a"), "${{ input }}");
    assert_eq!(input("b"), "${{ steps.a.output }}");
    assert!(w.output.is_none());
    assert_eq!(
        faults("name: x\nsteps:\n  a: {to: role:a}\n  b: {to: role:b}\n  c: {to: role:c, needs: [a, b]}\n"),
        [(FaultCode::AmbiguousInput, 5, 3, "/steps/c".into())]
    );
}

/// A workflow of one good step `a`, and one step `b` with this line as its member.
fn with(line: &str) -> String {
    format!("name: x\nsteps:\n  a: {{to: agent:a, input: hi}}\n  b:\n    to: role:b\n    {line}\n")
}

#[test]
fn each_fault_is_told_with_its_place() {
    use FaultCode as C;
    let at = |code, column, pointer: &str| vec![(code, 6, column, format!("/steps/b/{pointer}"))];
    let table = [
        ("colour: red", at(C::UnknownMember, 5, "colour")),
        ("url: https://evil.example", at(C::UrlInWorkflow, 10, "url")),
        ("fallback: https://evil.example/a2a", at(C::UrlInWorkflow, 15, "fallback")),
        ("fallback: agent:HTTPS://evil", at(C::UrlInWorkflow, 15, "fallback")),
        ("fallback: role:b", at(C::BadValue, 15, "fallback")),
        ("fallback: coordinator", at(C::BadEndpoint, 15, "fallback")),
        ("fallback: \"agent:${{ input.text }}\"", at(C::BadEndpoint, 15, "fallback")),
        ("may: [agent:a, 'http://x']", at(C::UrlInWorkflow, 20, "may/1")),
        ("may: agent:a", at(C::WrongType, 10, "may")),
        ("needs: [c]", at(C::UnknownStep, 13, "needs/0")),
        ("needs: [a, a]", at(C::BadValue, 16, "needs/1")),
        ("needs: [b]", at(C::Cycle, 13, "needs/0")),
        ("deadline: ~", at(C::WrongType, 15, "deadline")),
        ("label:", at(C::WrongType, 10, "label")),
        ("label: secret", at(C::BadLabel, 12, "label")),
        ("label: internal+E", at(C::BadLabel, 12, "label")),
        ("deadline: 2 weeks", at(C::BadValue, 15, "deadline")),
        ("deadline: 0s", at(C::BadValue, 15, "deadline")),
        ("deadline: 90", at(C::WrongType, 15, "deadline")),
        ("retry: 11", at(C::BadValue, 12, "retry")),
        ("retry: { attempts: 0 }", at(C::BadValue, 24, "retry/attempts")),
        ("retry: { backoff: 1s }", at(C::MissingMember, 12, "retry")),
        ("retry: { attempts: 1, jitter: 1 }", at(C::UnknownMember, 27, "retry/jitter")),
        ("on_input_required: maybe", at(C::BadValue, 24, "on_input_required")),
        ("output_schema: [1]", at(C::BadSchema, 20, "output_schema")),
        ("output_schema: { $ref: 'https://x/s' }", at(C::BadSchema, 28, "output_schema/$ref")),
        (
            "output_schema: { properties: { a: { $ref: other.json } } }",
            at(C::BadSchema, 47, "output_schema/properties/a/$ref"),
        ),
        ("input: \"${{ 1 + }}\"", at(C::BadExpression, 21, "input")),
        ("input: \"${{ input\"", at(C::BadExpression, 16, "input")),
        ("input: \"x ${{ nope }}\"", at(C::UnknownName, 19, "input")),
        ("input: { a: [\"${{ size(env) }}\"] }", at(C::UnknownName, 28, "input/a/0")),
        ("input: \"${{ input.text.matches('x') }}\"", at(C::UnknownFunction, 28, "input")),
        ("input: \"${{ steps.a.output }}\"", at(C::NotNeeded, 23, "input")),
        ("input: \"${{ steps.zz.output }}\"", at(C::UnknownStep, 23, "input")),
        ("input: \"${{ item }}\"", at(C::UnknownName, 17, "input")),
        ("input: { \"${{ input }}\": 1 }", at(C::BadExpression, 14, "input/${{ input }}")),
        ("when: \"${{ true }}\"", at(C::BadValue, 11, "when")),
        ("when: true", at(C::WrongType, 11, "when")),
        ("when: \"if ${{ input.data }}\"", at(C::WrongType, 11, "when")),
        ("for_each: { max: 3 }", at(C::MissingMember, 15, "for_each")),
        ("for_each: { in: \"${{ input.data }}\", max: 101 }", at(C::BadValue, 47, "for_each/max")),
        ("for_each: [1]", at(C::WrongType, 15, "for_each")),
    ];
    for (line, expected) in table {
        assert_eq!(faults(&with(line)), expected, "{line}: {:?}", parse(&with(line)));
    }
    let long = format!("input: \"${{{{ {} }}}}\"", "1+".repeat(600));
    assert_eq!(faults(&with(&long))[0].0, C::ExpressionTooLarge);
}

#[test]
fn faults_of_the_whole_are_told_with_their_place() {
    use FaultCode as C;
    let one = |code, line, column, pointer: &str| vec![(code, line, column, pointer.to_owned())];
    let table = [
        ("", one(C::BadYaml, 1, 1, "")),
        ("[1]", one(C::WrongType, 1, 1, "")),
        ("steps: {a: {to: role:a}}", one(C::MissingMember, 1, 1, "")),
        ("name: x", one(C::MissingMember, 1, 1, "")),
        ("name: X\nsteps: {a: {to: role:a}}", one(C::BadValue, 1, 7, "/name")),
        ("name: x\nsteps: {}", one(C::BadValue, 2, 8, "/steps")),
        ("name: x\nsteps: [a]", one(C::WrongType, 2, 8, "/steps")),
        ("name: x\nsteps: {a: {}}", one(C::MissingMember, 2, 9, "/steps/a")),
        ("name: x\nsteps: {a-b: {to: role:a}}", one(C::BadValue, 2, 9, "/steps/a-b")),
        ("name: x\nsteps: {a: {to: http://x}}", one(C::UrlInWorkflow, 2, 17, "/steps/a/to")),
        ("name: x\nsteps: {a: {to: writer}}", one(C::BadEndpoint, 2, 17, "/steps/a/to")),
        ("name: x\nname: y\nsteps: {a: {to: role:a}}", one(C::DuplicateKey, 2, 1, "/name")),
        (
            "name: x\nsteps: {a: &s {to: role:a}, b: *s}",
            vec![(C::AliasOrTag, 2, 15, "/steps/a".into()), (C::AliasOrTag, 2, 32, "/steps/b".into())],
        ),
        (
            "name: x\nsteps: {a: {to: role:a}}\nbudget_microusd: -1",
            one(C::BadValue, 3, 18, "/budget_microusd"),
        ),
        ("name: x\nsteps: {a: {to: role:a}}\nmax_hops: 1.5", one(C::BadValue, 3, 11, "/max_hops")),
        ("name: x\nsteps: {a: {to: role:a}}\nversion: 0", one(C::BadValue, 3, 10, "/version")),
        (
            "name: x\nsteps: {a: {to: role:a}}\noutput: ${{ steps.b.output }}",
            one(C::UnknownStep, 3, 19, "/output"),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(faults(text), expected, "{text}: {:?}", parse(text));
    }
    assert_eq!(faults(&" ".repeat(MAX_TEXT_BYTES + 1))[0].0, C::TooLarge);
    let many: String = (0..=MAX_STEPS).map(|i| format!("  s{i}: {{to: role:a}}\n")).collect();
    assert_eq!(faults(&format!("name: x\nsteps:\n{many}")), one(C::TooManySteps, 259, 3, "/steps"));
}

#[test]
fn an_unknown_destination_is_refused_where_it_stands() {
    let known = |e: &Endpoint| !matches!(e, Endpoint::Agent(k) if k.as_str() != "auditor");
    let against = |text: &str| Workflow::parse_against(text, &Levels::default(), &known);
    assert!(against(EXAMPLE).is_ok());
    let found = against(&EXAMPLE.replace("agent:auditor", "agent:stranger")).unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].code, found[0].line, found[0].column), (FaultCode::UnknownDestination, 5, 9));
}

#[test]
fn a_hostile_text_within_its_size_is_read_in_bounded_work() {
    let head = "name: x\nsteps:\n";
    let mut needy = head.to_owned();
    for i in 0..MAX_STEPS {
        let needs: Vec<String> = (0..i).map(|n| format!("s{n}")).collect();
        needy.push_str(&format!("  s{i}: {{to: role:a, input: x, needs: [{}]}}\n", needs.join(",")));
    }
    assert!(needy.len() <= MAX_TEXT_BYTES);
    assert!(parse(&needy).is_ok());
    let fill = |unit: &str| unit.repeat((MAX_TEXT_BYTES - 200) / unit.len());
    for text in [
        format!("{head}  a: {{to: role:a, needs: [{}]}}", fill("b,")),
        format!("{head}  a: {{to: role:a, may: [{}]}}", fill("x,")),
        format!("{head}  a: {{to: role:a, input: \"{}\"}}", fill("${{input}}")),
        format!("{head}  a: {{to: role:a, input: [{}]}}", fill("'${{q}}',")),
        format!("{head}  a: {{to: role:a, input: {}1{}}}", "[".repeat(50), "]".repeat(50)) + &fill(" "),
        format!(
            "{head}  a: {{to: role:a, input: {}[{}]",
            "{aaaaaaaaaaaaaaaaaaaaaaaaaaaa: ".repeat(40),
            fill("1,")
        ),
        fill("a"),
        fill("a: 1\n"),
        fill("- "),
        fill("\"\\u0041"),
    ] {
        let faults = parse(&text).err().unwrap_or_default();
        assert!(faults.len() <= MAX_FAULTS);
    }
}

#[test]
fn a_cycle_is_named_once_and_what_hangs_on_it_is_not_blamed() {
    let text = "name: x\nsteps:\n  a: {to: role:a, input: x, needs: [c]}\n  b: {to: role:b, needs: [a]}\n  c: {to: role:c, needs: [b]}\n  d: {to: role:d, needs: [c]}\n";
    let found = parse(text).unwrap_err();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].code, found[0].line, found[0].column), (FaultCode::Cycle, 3, 37));
    assert!(found[0].message.contains("a → c → b → a"), "{}", found[0].message);
}

#[test]
fn many_faults_are_told_at_once_in_the_order_of_the_text() {
    let text = "name: X\nsteps:\n  a: {to: 'https://x', deadline: soon}\n  b: {to: role:b, needs: [q], input: '${{ nope }}'}\n";
    let codes: Vec<FaultCode> = faults(text).into_iter().map(|f| f.0).collect();
    use FaultCode as C;
    assert_eq!(codes, [C::BadValue, C::UrlInWorkflow, C::BadValue, C::UnknownStep, C::UnknownName]);
    let line = parse(text).unwrap_err()[1].to_string();
    assert!(line.starts_with("3:11: url_in_workflow: "), "{line}");
}

#[test]
fn a_fault_inside_a_block_or_an_escaped_string_stands_as_near_as_can_be_told() {
    let text = "name: x\nsteps:\n  a:\n    to: role:a\n    input: |\n      Dear all,\n      hé ${{ input.text }} and ${{ nope }}\n";
    assert_eq!(faults(text), [(FaultCode::UnknownName, 7, 36, "/steps/a/input".into())]);
    let text = "name: x\nsteps:\n  a:\n    to: role:a\n    input: '${{ ''a'' + nope }}'\n";
    assert_eq!(faults(text), [(FaultCode::UnknownName, 5, 13, "/steps/a/input".into())]);
}

#[test]
fn a_condition_on_foreign_words_needs_a_closed_choice_of_the_schema() {
    let text = |to: &str, schema: &str, when: &str| {
        format!(
            "name: x\nsteps:\n  a: {{to: {to}, output_schema: {schema}}}\n  b:\n    to: role:b\n    needs: [a]\n    when: ${{{{ {when} }}}}\n"
        )
    };
    let schema = "{properties: {ok: {type: boolean}, word: {type: string}}}";
    let refused = [(FaultCode::ForeignCondition, 7, 21, "/steps/b/when".to_owned())];
    assert!(parse(&text("agent:a", schema, "steps.a.output.data.ok")).is_ok());
    assert!(parse(&text("agent:a", "{}", "steps.a.status == 'completed'")).is_ok());
    assert_eq!(faults(&text("agent:a", "{}", "steps.a.output.data.ok")), refused);
    assert_eq!(faults(&text("agent:a", schema, "steps.a.output.data.word == 'go'")), refused);
    assert_eq!(faults(&text("agent:a", schema, "steps.a.output.text == 'go'")), refused);
    assert_eq!(faults(&text("role:a, fallback: agent:b", schema, "steps.a.output.text == 'go'")), refused);
    assert_eq!(faults(&text("role:a, may: [agent:b]", schema, "steps.a.output.text == 'go'")), refused);
    assert!(parse(&text("role:a", schema, "steps.a.output.text == 'go'")).is_ok());
}

#[test]
fn foreign_words_stay_foreign_when_an_internal_step_passes_them_on() {
    let text = |input: &str| {
        format!(
            "name: x\nsteps:\n  f: {{to: agent:f}}\n  m: {{to: role:m, needs: [f]{input}}}\n  e:\n    to: role:e\n    needs: [m]\n    for_each: ${{{{ steps.m.output.data.list }}}}\n"
        )
    };
    let refused = [(FaultCode::ForeignCondition, 8, 25, "/steps/e/for_each".to_owned())];
    assert_eq!(faults(&text("")), refused);
    assert_eq!(faults(&text(", input: '${{ steps.f.output.text }}'")), refused);
    assert!(parse(&text(", input: '${{ input }}'")).is_ok());
}

#[test]
fn the_taint_that_a_task_really_has_is_judged_by_the_same_rule() {
    let w = parse(
        "name: x\ninput_schema: {properties: {n: {type: number}}}\nsteps:\n  a: {to: role:a}\n  b: {to: role:b, needs: [a], \
         when: \"${{ input.data.n > 1 && steps.a.output.text != '' }}\"}\n",
    )
    .unwrap();
    let b = name("b");
    assert_eq!(w.unsafe_read(&b, &[].into()), None);
    assert_eq!(w.unsafe_read(&b, &[Source::Input].into()), None);
    let refused = w.unsafe_read(&b, &[Source::Step(name("a"))].into()).unwrap();
    assert!(refused.to_string().contains("the output of `a`"));
}

#[test]
fn the_digest_covers_the_meaning_and_not_the_spelling() {
    let digest = |text: &str| parse(text).unwrap().digest();
    let base = digest("name: x\nsteps: {a: {to: role:a}, b: {to: role:b, needs: [a], deadline: 60m}}");
    for same in [
        "# note\nname: \"x\"\nversion: 7\nsteps:\n  b:\n    needs: [a]\n    to: role:b\n    deadline: 1h\n  a: {to: role:a}\n",
        r#"{"steps":{"a":{"to":"role:a","input":"${{ input }}"},"b":{"to":"role:b","needs":["a"],"deadline":"1h","on_input_required":"ask"}},"name":"x"}"#,
    ] {
        assert_eq!(digest(same), base, "{same}");
    }
    for other in [
        "name: y\nsteps: {a: {to: role:a}, b: {to: role:b, needs: [a], deadline: 60m}}",
        "name: x\nsteps: {a: {to: role:a}, b: {to: role:c, needs: [a], deadline: 60m}}",
        "name: x\nsteps: {a: {to: role:a, may: []}, b: {to: role:b, needs: [a], deadline: 60m}}",
    ] {
        assert_ne!(digest(other), base, "{other}");
    }
}

#[test]
fn a_workflow_is_stored_as_its_text_and_reads_back_equal() {
    let w = parse(EXAMPLE).unwrap();
    let stored = serde_json::to_string(&w).unwrap();
    assert_eq!(serde_json::from_str::<Workflow>(&stored).unwrap(), w);
    let odd = Levels::try_from(vec!["low".to_owned(), "high".to_owned()]).unwrap();
    let labelled = "name: x\nlabel: high\nsteps: {a: {to: role:a}}";
    assert!(Workflow::parse(labelled, &odd).is_ok());
    assert!(Workflow::load(labelled).is_ok());
    assert_eq!(parse(labelled).unwrap_err()[0].code, FaultCode::BadLabel);
    assert!(serde_json::from_str::<Workflow>("\"name: x\"").is_err());
}

#[test]
fn a_version_is_written_name_at_number() {
    let r: WorkflowRef = "invoice-check@3".parse().unwrap();
    assert_eq!((r.name.as_str(), r.version, r.to_string()), ("invoice-check", 3, "invoice-check@3".into()));
    for bad in ["x", "x@", "x@0", "x@03", "x@+3", "x@-1", "X@1", "@1", "x@1@2", "x@4294967296"] {
        assert!(bad.parse::<WorkflowRef>().is_err(), "{bad}");
    }
}

#[test]
fn every_example_of_the_guide_parses() {
    let guide = include_str!("../../../../../docs/workflows.md");
    let blocks: Vec<&str> = guide.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 3);
    for block in blocks {
        assert!(parse(block).is_ok(), "{block}\n{:?}", parse(block));
    }
}

#[test]
fn the_published_schema_has_the_members_that_are_read() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../docs/workflow.schema.json")).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let named = |at: &str| {
        let members = schema.pointer(at).unwrap().as_object().unwrap();
        members.keys().cloned().collect::<BTreeSet<_>>()
    };
    let known = |members: &[&str]| members.iter().map(|m| (*m).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(named("/properties"), known(&MEMBERS));
    assert_eq!(named("/$defs/step/properties"), known(&STEP_MEMBERS));
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["$defs"]["step"]["additionalProperties"], false);
    assert_eq!(schema["$defs"]["steps"]["maxProperties"], MAX_STEPS);
}

proptest! {
    #[test]
    fn a_mutated_workflow_never_panics(at in 0..EXAMPLE.len(), cut in 0..40usize, put in "\\PC{0,6}|[{}\\[\\]:,&*'\"$ \n-]{0,4}") {
        let end = (at + cut).min(EXAMPLE.len());
        let mut text = EXAMPLE.to_owned();
        text.replace_range(at..end, &put);
        if let Err(faults) = parse(&text) {
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.is_sorted());
            let lines = u32::try_from(text.lines().count()).unwrap() + 1;
            prop_assert!(faults.iter().all(|f| (1..=lines).contains(&f.line) && f.column >= 1), "{:?}", faults);
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,300}") {
        let _ = parse(&text);
    }

    #[test]
    fn what_parses_has_no_cycle_and_only_known_needs(edges in proptest::collection::vec((0..6usize, 0..7usize), 0..10)) {
        let mut steps = String::new();
        for i in 0..6 {
            let needs: BTreeSet<String> = edges.iter().filter(|(a, _)| *a == i).map(|(_, b)| format!("s{b}")).collect();
            let needs = needs.into_iter().collect::<Vec<_>>().join(", ");
            steps.push_str(&format!("  s{i}: {{to: role:a, input: x, needs: [{needs}]}}\n"));
        }
        let read = parse(&format!("name: x\nsteps:\n{steps}"));
        let unknown = edges.iter().any(|(_, b)| *b == 6);
        // Depth first over the edges themselves, to know by other means whether they go round.
        let reaches = |from: usize, to: usize| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<usize> = edges.iter().filter(|(a, _)| *a == from).map(|(_, b)| *b).collect();
            while let Some(s) = open.pop() {
                if seen.insert(s) { open.extend(edges.iter().filter(|(a, _)| *a == s).map(|(_, b)| *b)); }
            }
            seen.contains(&to)
        };
        let round = (0..6).any(|s| reaches(s, s));
        prop_assert_eq!(read.is_ok(), !unknown && !round);
        if let Err(faults) = read {
            prop_assert_eq!(faults.iter().any(|f| f.code == FaultCode::Cycle), round);
        }
    }
}

#[test]
fn every_bad_expression_of_a_string_is_told_where_it_stands() {
    let text = "name: w\nsteps:\n  a: { to: role:r, input: \"x ${{ 1 + }} y ${{ input }} ${{ nope }} ${{ f(1) }}\" }\n";
    let at = |what: &str| u32::try_from(text.lines().nth(2).unwrap().find(what).unwrap()).unwrap() + 1;
    let pointer = || "/steps/a/input".to_owned();
    let found = faults(text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0].0, FaultCode::BadExpression);
    assert_eq!(found[1], (FaultCode::UnknownName, 3, at("nope"), pointer()));
    assert_eq!(found[2], (FaultCode::UnknownFunction, 3, at("f(1)"), pointer()));
}
