//! What is refused, where, and in which words.

use exeat_policy::{PolicyFault, PolicySet, STARTER};

use crate::world::*;

fn only(text: &str) -> PolicyFault {
    let faults = faults(text);
    assert_eq!(faults.len(), 1, "{text}\n{faults:#?}");
    faults[0].clone()
}

#[test]
fn each_kind_of_fault_is_told_with_its_place_and_policy() {
    let table: &[(&str, u32, u32, Option<&str>, &str)] = &[
        ("permit (principal, action, resource);", 1, 1, None, "no @id"),
        ("\n  @id(\"\") permit (principal, action, resource);", 2, 3, None, "1 to 128 characters"),
        ("@id permit (principal, action, resource);", 1, 1, None, "1 to 128 characters"),
        ("@id(\"a\\nb\") permit (principal, action, resource);", 1, 1, None, "1 to 128 characters"),
        (
            "@id(\"a\") permit (principal, action, resource);\n @id(\"a\") forbid (principal, action, resource);",
            2,
            2,
            Some("a"),
            "taken by the policy on line 1",
        ),
        (
            "@id(\"a\") @approval(\"ops\")\npermit (principal, action, resource);",
            1,
            1,
            Some("a"),
            "on a forbid only",
        ),
        ("@id(\"a\") @approval forbid (principal, action, resource);", 1, 1, Some("a"), "approver role"),
        (
            "@id(\"a\") @approval(\"O ps\") forbid (principal, action, resource);",
            1,
            1,
            Some("a"),
            "approver role",
        ),
        ("@id(\"a\") @reason forbid (principal, action, resource);", 1, 1, Some("a"), "one sentence"),
        (
            "@id(\"a\") @reason(\"x\\ny\") forbid (principal, action, resource);",
            1,
            1,
            Some("a"),
            "one sentence",
        ),
        (
            "@id(\"a\") @aproval(\"ops\") forbid (principal, action, resource);",
            1,
            1,
            Some("a"),
            "@aproval isn't known",
        ),
        ("\n@id(\"a\") permit (principal == ?principal, action, resource);", 2, 1, Some("a"), "template"),
        ("@id(\"a\")\n  permt (principal, action, resource);", 2, 3, None, "effect"),
        ("@id(\"a\") permit (principal, action, resource)", 1, 46, None, "end of input"),
        ("@id(\"a\") permit (principal, action == Action::\"fly\", resource);", 1, 39, Some("a"), "fly"),
        ("@id(\"a\") permit (principal is Robot, action, resource);", 1, 31, Some("a"), "Robot"),
        (
            "@id(\"a\") permit (principal, action == Action::\"forward\", resource)\nwhen { context.colour == 1 };",
            2,
            8,
            Some("a"),
            "colour",
        ),
        (
            "@id(\"a\") permit (principal, action == Action::\"forward\", resource)\nwhen { context.turn == \"1\" };",
            2,
            8,
            Some("a"),
            "types",
        ),
    ];
    for (text, line, column, policy_id, words) in table {
        let fault = only(text);
        assert!(fault.message.contains(words), "{text}\n{fault:#?}");
        assert_eq!(fault.policy_id.as_deref(), *policy_id, "{text}\n{fault:#?}");
        assert_eq!((fault.line, fault.column), (*line, *column), "{text}\n{fault:#?}");
        assert!(fault.message.ends_with(['.', '!', '?']), "{fault:#?}");
        assert!(fault.message.starts_with(|c: char| !c.is_lowercase()), "{fault:#?}");
        assert!(!fault.message.contains("policy0"), "{fault:#?}");
    }
}

#[test]
fn an_optional_attribute_is_read_only_behind_has() {
    let policy = |condition: &str| {
        format!(
            "@id(\"a\") forbid (principal, action == Action::\"a2a_egress\", resource)\nwhen {{ {condition} }};"
        )
    };
    for (attribute, value) in
        [("context.skill", "\"x\""), ("context.budget_left_microusd", "5"), ("resource.region", "\"eu\"")]
    {
        let (of, name) = attribute.split_once('.').unwrap();
        let fault = only(&policy(&format!("{attribute} == {value}")));
        assert_eq!((fault.line, fault.column), (2, 8), "{fault:#?}");
        assert!(fault.message.contains("optional") && fault.message.contains("has"), "{fault:#?}");
        set(&policy(&format!("{of} has {name} && {attribute} == {value}")));
    }
}

#[test]
fn an_attribute_that_only_some_actions_have_needs_the_action_named_or_has() {
    let fault = only("@id(\"a\") forbid (principal, action, resource) when { context.tainted };");
    assert_eq!(fault.column, 54);
    set("@id(\"a\") forbid (principal, action, resource) when { context has tainted && context.tainted };");
}

#[test]
fn all_faults_are_told_at_once_in_the_order_of_the_text() {
    let text = "permit (principal, action, resource);\n\
        @id(\"b\") permit (principal, action == Action::\"fly\", resource);\n\
        @id(\"c\") @approval(\"ops\") permit (principal, action == Action::\"swim\", resource);\n\
        @id(\"b\") forbid (principal, action, resource);\n";
    let places: Vec<_> = faults(text).iter().map(|fault| (fault.line, fault.column)).collect();
    assert_eq!(places, [(1, 1), (2, 39), (3, 1), (3, 56), (4, 1)]);
}

#[test]
fn columns_count_characters_not_bytes() {
    let fault = only("@id(\"größer\") permit (principal, action == Action::\"fly\", resource);");
    assert_eq!((fault.column, fault.policy_id.as_deref()), (44, Some("größer")));
}

#[test]
fn a_set_has_at_most_five_hundred_policies() {
    let policies = |n: usize| -> String {
        (0..n).map(|i| format!("@id(\"p{i}\") permit (principal, action, resource);\n")).collect()
    };
    set(&policies(500));
    let fault = only(&policies(501));
    assert_eq!((fault.line, fault.column), (501, 1));
    assert!(fault.message.contains("500"), "{fault}");
}

#[test]
fn a_person_is_told_at_most_a_hundred_faults_at_once() {
    assert_eq!(faults(&"permit (principal, action, resource);\n".repeat(300)).len(), 100);
}

#[test]
fn the_empty_set_is_valid() {
    for text in ["", "\n", "// nothing is allowed\n"] {
        assert!(PolicySet::parse(text).unwrap().ids().is_empty());
    }
}

#[test]
fn what_is_valid_but_can_never_apply_is_a_warning_with_its_place() {
    let text = format!("{STARTER}@id(\"never\") forbid (principal, action, resource) when {{ false }};");
    let set = set(&text);
    let [warning] = set.warnings() else { panic!("{:#?}", set.warnings()) };
    assert_eq!(warning.policy_id.as_deref(), Some("never"));
    assert_eq!(warning.line, u32::try_from(STARTER.lines().count()).unwrap() + 1);
}

#[test]
fn the_built_in_sets_have_no_faults_and_no_warnings() {
    assert!(set(STARTER).warnings().is_empty());
    let platform = PolicySet::platform(None).unwrap();
    assert!(platform.warnings().is_empty());
    assert_eq!(platform.ids().into_iter().collect::<Vec<_>>(), ["platform-default"]);
}

#[test]
fn the_platform_set_is_the_operators_if_there_is_one() {
    let own = "@id(\"own\") permit (principal, action, resource);";
    assert_eq!(PolicySet::platform(Some(own)).unwrap().ids().into_iter().collect::<Vec<_>>(), ["own"]);
    assert!(PolicySet::platform(Some("permit")).is_err());
}

#[test]
fn a_fault_reads_on_its_own_and_as_json() {
    let fault = only("permit (principal, action, resource);");
    assert_eq!(fault.to_string(), format!("line 1, column 1: {}", fault.message));
    let json = serde_json::to_value(&fault).unwrap();
    assert_eq!(json["line"], 1);
    assert_eq!(json.get("policy_id"), None);
}
