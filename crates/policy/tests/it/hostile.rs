//! Names, texts and numbers that were chosen to break something.

use exeat_core::gate::verdict::{Action, Entity, Facts, Governor as _, HopFacts, Opinion, Question};
use exeat_policy::{PLATFORM_DEFAULT, PolicySet, STARTER, describe};
use proptest::prelude::*;

use crate::world::*;

#[test]
fn quotes_controls_and_foreign_scripts_in_names_stay_names() {
    let sets = starter_and(
        r#"@id("no-desk") forbid (principal, action, resource == Team::"desk");
        @id("no-skill") forbid (principal, action == Action::"forward", resource)
            when { context has skill && context.skill == "evil" };"#,
    );
    let names = [
        "",
        "\"",
        "desk\"",
        "desk\" || true || \"",
        "Team::\"desk\"",
        "\\",
        "\n\0\u{202E}",
        "名前",
        "désk",
        "*",
        "?principal",
    ];
    for name in names {
        let mut hop = hop();
        hop.skill = Some(format!("{name}evil{name}x"));
        hop.step = name.to_owned();
        hop.parts = texts(&[name]);
        let asked =
            question(role(), Action::Forward, Entity::Team { name: name.to_owned() }, Facts::Hop(hop));
        assert_eq!(opinion(&sets, &asked), Opinion::Allow, "{name:?}");
        assert_eq!(describe(&asked)["resource"]["id"], name);
    }
    let desk = question(role(), Action::Forward, team(), Facts::Hop(hop()));
    assert_eq!(ids(&sets.judge(&desk)), ["no-desk"]);
}

#[test]
fn texts_at_the_bounds_neither_overflow_the_stack_nor_pass_them() {
    let around = |condition: &str| {
        format!(
            "@id(\"a\") forbid (principal, action == Action::\"forward\", resource) when {{ {condition} }};"
        )
    };
    let repeat = |link: &str, n: usize, end: &str| around(&format!("{}{end}", link.repeat(n)));
    let nested = |open: &str, n: usize, core: &str, close: &str| {
        around(&format!("{}{core}{}", open.repeat(n), close.repeat(n)))
    };
    // At most what the bounds let through: each must be judged without an error, by whoever calls.
    let within = [
        repeat("context.tainted && ", 98, "true"),
        repeat("context.tainted || ", 98, "true"),
        repeat("if context.tainted then true else ", 95, "false"),
        repeat("true && ", 190, "true"),
        repeat("if true then true else ", 190, "false"),
        around("true").replace(';', &" when { true }".repeat(190)).replace("};", "}") + ";",
        around("true").replace(';', &" unless { false }".repeat(190)) + ";",
        nested("(", 25, "context.tainted", ")"),
        nested("(!(", 12, "context.tainted", "))"),
        format!("{}{}", around("context.turn == 1"), "// (((((([[[[[[".repeat(1000)),
        around(&format!("[\"{}\"].contains(context.step)", "a\", \"".repeat(1_900))),
        around(&format!("[{}].contains(context.turn)", "1, ".repeat(1_900))),
        around(&format!("{} == context.turn", ["1"; 190].join(" + "))),
        around(&format!("{} == context.turn", ["1"; 190].join(" - "))),
        around(&format!("{} == 0", ["context.turn"; 90].join(" * "))),
    ];
    for text in within {
        let sets = sets(&format!("{PLATFORM_DEFAULT} {text}"), STARTER);
        let asked = question(role(), Action::Forward, role(), Facts::Hop(hop()));
        let judge = || assert_eq!(sets.explain(&asked).troubles, [], "{text:.120}");
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(128 * 1024);
            small.spawn_scoped(scope, judge).unwrap().join().unwrap();
        });
    }
    let beyond = [
        nested("(", 100_000, "true", ")"),
        nested("[", 100_000, "true", "]"),
        nested("{a:", 60_000, "true", "}"),
        nested("(!", 20_000, "true", ")"),
        repeat("!", 200_000, "true"),
        repeat("-", 200_000, "1 == 1"),
        repeat("true && ", 30_000, "true"),
        repeat("1 + ", 50_000, "1 == 1"),
        around("true").replace(';', &" when { true }".repeat(15_000)) + ";",
        repeat("if true then true else ", 10_000, "true"),
        format!("{}{}", "(".repeat(200_000), ")".repeat(10)),
        around(&format!("context{}", ".a".repeat(100_000))),
        around(&format!("context{}", "[\"a\"]".repeat(40_000))),
        around(&format!("context.step like \"{}\"", "*a".repeat(100_000))),
        around(&format!("principal == {}\"a\"", "A::".repeat(60_000))),
        around(&format!("principal is {}A", "A::".repeat(60_000))),
        around(&format!("{{{}}} == {{}}", "a: 1, ".repeat(30_000))),
        around(&format!("[{}].contains(1)", "1, ".repeat(80_000))),
        "@id(\"a\")".repeat(30_000),
        "\"".repeat(200_001),
        "@".repeat(200_000),
        ";".repeat(200_000),
    ];
    for text in &beyond {
        assert!(PolicySet::parse(text).is_err(), "{text:.120}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z\"\\\\:(){}]{0,12}"]
}

prop_compose! {
    fn any_hop()(
        (task, workflow, step) in (any_text(), any_text(), any_text()),
        (turn, depth, hops) in any::<(u32, u32, u32)>(),
        level in 0..4usize,
        tags in proptest::collection::btree_set("[a-z]{1,4}", 0..4),
        (tainted, first_contact) in any::<(bool, bool)>(),
        parts in proptest::collection::btree_set(any_text(), 0..5),
        (size_bytes, price_microusd, budget_left_microusd) in any::<(u64, u64, Option<u64>)>(),
        skill in proptest::option::of(any_text()),
        (hour_utc, weekday) in any::<(u8, u8)>(),
    ) -> HopFacts {
        let name = ["public", "internal", "confidential", "restricted"][level];
        let label = exeat_core::label::Levels::default().label(name, tags).unwrap();
        HopFacts {
            task, workflow, step, turn, depth, hops, label, tainted, parts, size_bytes, skill, first_contact,
            price_microusd, budget_left_microusd, hour_utc, weekday,
        }
    }
}

fn any_entity() -> impl Strategy<Value = Entity> {
    prop_oneof![
        Just(Entity::Org),
        any_text().prop_map(|name| Entity::Team { name }),
        Just(role()),
        (any_text(), any_text(), proptest::option::of(any_text())).prop_map(|(origin, provider, region)| {
            let Entity::Agent(mut facts) = agent() else { panic!("an agent") };
            (facts.origin, facts.provider, facts.region) = (origin, provider, region);
            Entity::Agent(facts)
        }),
        proptest::collection::btree_set(any_text(), 0..4).prop_map(|scopes| {
            let Entity::Key(mut facts) = key(&[]) else { panic!("a key") };
            facts.scopes = scopes;
            Entity::Key(facts)
        }),
    ]
}

fn any_question() -> impl Strategy<Value = Question> {
    let action = prop_oneof![
        Just(Action::Forward),
        Just(Action::A2aEgress),
        Just(Action::A2aIngress),
        Just(Action::Declassify),
        Just(Action::RegisterAgent),
        Just(Action::SignPosture),
    ];
    let facts = prop_oneof![
        4 => any_hop().prop_map(Facts::Hop),
        1 => Just(Facts::Declassify { from: label("restricted"), to: label("public+eu") }),
        1 => Just(Facts::Nothing {}),
    ];
    (any_entity(), action, any_entity(), facts)
        .prop_map(|(principal, action, resource, facts)| question(principal, action, resource, facts))
}

/// Uses every kind of expression on facts of every kind, with an overflow within reach.
const BUSY: &str = r#"
    @id("ask") @approval("ops") forbid (principal, action == Action::"a2a_egress", resource)
        when { context.first_contact || (context has skill && context.skill like "*e*") };
    @id("price") forbid (principal, action in [Action::"forward", Action::"a2a_egress"], resource)
        when { context.price_microusd * context.turn > 1000000 };
    @id("tags") forbid (principal, action, resource)
        when { context has label && context.label.tags.containsAny(["a", "b"]) };"#;

proptest! {
    #[test]
    fn the_same_question_gets_the_same_answer_whatever_it_is(asked in any_question()) {
        let text = format!("{STARTER} {BUSY}");
        let (one, other) = (sets(PLATFORM_DEFAULT, &text), sets(PLATFORM_DEFAULT, &text));
        let judgement = one.judge(&asked);
        prop_assert_eq!(&judgement, &one.judge(&asked));
        prop_assert_eq!(&judgement, &other.judge(&asked));
        prop_assert_eq!(&judgement, &one.explain(&asked).judgement);
    }

    #[test]
    fn a_well_formed_hop_is_never_an_error_of_ours(asked in any_hop()) {
        let sets = sets(PLATFORM_DEFAULT, STARTER);
        prop_assert_eq!(opinion(&sets, &egress(asked)), Opinion::Allow);
    }

    #[test]
    fn any_text_is_a_set_or_faults_with_places_in_order(text in any_text(), cut in 0..600usize) {
        let starter: String = STARTER.chars().take(cut).collect();
        for text in [text.clone(), format!("{starter}{text}")] {
            if let Err(faults) = PolicySet::parse(&text) {
                prop_assert!(!faults.is_empty());
                prop_assert!(faults.is_sorted());
                prop_assert!(faults.iter().all(|f| f.line >= 1 && f.column >= 1 && !f.message.is_empty()));
            }
        }
    }
}
