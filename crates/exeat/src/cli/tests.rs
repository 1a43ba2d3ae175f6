//! The command line as a table: what is said, and what it is read as.

use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("exeat").chain(line.split(' ')))
}

const ID: &str = "0197f3a0-0000-7000-8000-000000000001";

#[test]
fn every_line_of_the_contract_parses() {
    for line in [
        "serve --data D",
        "serve --data D --listen 127.0.0.1:0 --config F",
        "agent add k1 --url http://u --plaintext --allow-cidr 127.0.0.0/8 --allow-cidr ::1/128 --ceiling internal",
        "agent add k1 --url u --ceiling L1 --output-label internal+eu --credential env:X --header H --skill a",
        "agent set k1 --price 5 --push off --trust body",
        "agent sign k1 --version 3",
        "agent sign k1",
        "agent list",
        "agent show k1",
        "agent probe k1",
        "agent probe k1 --reason r",
        "agent disable k1",
        "agent enable k1 --reason r",
        "agent revoke k1",
        "agent halt k1",
        "agent resume k1",
        "egress on",
        "egress off --strand --reason r",
        "egress drain",
        "egress halt --reason r",
        "egress show",
        "delegate agent:a hello --wait",
        "delegate role:r - --data {} --file a --file b --skill s --label internal --deadline 2h --budget 5",
        "delegate team:t x --wait --timeout 30s",
        "delegate team:t x --dry-run",
        "workflow push F",
        "workflow check F",
        "workflow list",
        "workflow show n --version 2",
        "run n --input {} --wait",
        "run n --text hello --timeout 5m",
        "run n --input {} --skill s --label internal --deadline 2h --budget 5",
        "run n --data {} --budget 5 --dry-run",
        "--ca F task list",
        "run n",
        "task list --status running",
        "task list --stuck",
        "task show ID",
        "task watch ID --timeout 1m",
        "task cancel ID --reason r",
        "task answer ID text",
        "task answer ID --data {} --question q",
        "approval list",
        "approval list --watch",
        "approval show ID",
        "approval approve ID --digest d --yes",
        "approval deny ID --reason r",
        "role set n --clearance internal --may agent:a --may role:b --team t",
        "role list",
        "role show n",
        "budget set org 5 --period day",
        "budget set agent:a 5",
        "cost show",
        "cost show --by day --from 2026-01-01 --to 2026-01-02T00:00:00Z",
        "policy check F",
        "policy push F",
        "policy explain ID",
        "audit list --task ID",
        "audit verify",
        "audit verify --file F --key PEM",
        "audit export --from 3",
        "audit key",
        "key create --name n --scope requester --scope viewer --approver-role ops --worker-role w",
        "key list",
        "key revoke abc",
        "key rotate-callback",
        "org create acme",
        "worker --role writer --text -- tr a-z A-Z",
        "worker --role writer --concurrency 4 --timeout 10m -- cmd --flag",
        "stub-agent --listen 127.0.0.1:0 --protocol both --push on --token t --log f",
        "doctor",
        "doctor --data D --reach --json",
        "demo --yes --exit --json",
        "completions bash",
        "--json --quiet --url http://h --key k task list",
        "task list --json -q --url http://h --key @f",
    ] {
        let line = line.replace("ID", ID).replace("L1", "internal");
        if let Err(e) = parse(&line) {
            panic!("{line}\n{e}");
        }
    }
}

#[test]
fn what_is_not_meant_does_not_parse() {
    for line in [
        "delegate",
        "delegate http://peer hello",
        "delegate agent:A hello",
        "delegate agent:a x --deadline soon",
        "delegate agent:a x --label Secret",
        "delegate agent:a x --budget -5",
        "delegate agent:a x --wait --dry-run",
        "agent add k1 --ceiling internal",
        "agent add k1 --url u",
        "agent add k1 --url u --ceiling internal --header H",
        "agent set k1 --plaintext --no-plaintext",
        "egress",
        "egress on --strand",
        "approval deny ID",
        "approval approve",
        "task show not-an-id",
        "task list --stuck --status running",
        "run n --input {} --text t",
        "key create --name n",
        "key create --name n --scope root",
        "budget set role:x 5",
        "budget set org 5 --period week",
        "worker --role writer",
        "worker --role writer --concurrency 0 -- cmd",
        "worker --role writer cmd",
        "policy explain x",
        "dlq retry ID --adopt --accept-duplicate",
        "task resolve ID --ran maybe --reason T",
        "cost show --by hop",
        "cost show --from yesterday",
    ] {
        assert!(parse(&line.replace("ID", ID)).is_err(), "{line}");
    }
}

#[test]
fn the_server_keeps_its_name_where_url_is_the_agents_and_key_the_ledgers() {
    for (line, url, key) in [
        ("--url http://s agent add k1 --url http://a --ceiling internal", "http://s", None),
        ("agent add k1 --url http://a --ceiling internal --server http://s --key k", "http://s", Some("k")),
        ("agent set k1 --url http://a", "http://127.0.0.1:7700", None),
        ("agent set k1 --server http://s", "http://s", None),
        ("agent sign k1 --url http://s", "http://s", None),
        ("--key k audit verify --file f --key pem", "http://127.0.0.1:7700", Some("k")),
        ("audit verify --api-key k", "http://127.0.0.1:7700", Some("k")),
        ("audit export --key k", "http://127.0.0.1:7700", Some("k")),
    ] {
        let cli = parse(line).unwrap_or_else(|e| panic!("{line}\n{e}"));
        assert_eq!((cli.global.url.as_str(), cli.global.key.as_deref()), (url, key), "{line}");
    }
}

#[test]
fn the_definition_of_the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_is_in_the_help_and_has_an_example_in_its_own() {
    fn walk(command: &clap::Command, path: &str) {
        for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name());
            assert!(sub.get_about().is_some(), "{path} says what it is for");
            if sub.has_subcommands() {
                walk(sub, &path);
            } else {
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{path} has an example");
                for line in help.lines() {
                    assert!(line.chars().count() <= 98, "{path}: it would be wrapped: {line}");
                }
            }
        }
    }
    let command = Cli::command();
    for sub in command.get_subcommands() {
        assert!(HELP.contains(&format!("\n  {:<11} ", sub.get_name())), "{} is in the help", sub.get_name());
    }
    walk(&command, "exeat");
}

#[test]
fn a_mistake_is_one_line_that_says_how_to_do_better() {
    let e = parse("agent add k1 --url u --ceiling internal --skil x").unwrap_err();
    assert_eq!(
        mistake(&e).to_string(),
        "usage: unexpected argument '--skil' found; tip: a similar argument exists: '--skill'; \
         Usage: exeat agent add --url <URL> --ceiling <LABEL> --skill <ID> <KEY>"
    );
    let e = parse("delegate http://peer x").unwrap_err();
    assert!(mistake(&e).to_string().contains("role:NAME, team:NAME or agent:KEY"), "{}", mistake(&e));
    let e = parse("agent").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
}

#[test]
fn every_command_that_a_hint_or_a_document_names_is_there() {
    let mut texts = Vec::new();
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut folders = vec![root.join("crates"), root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let ends = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if ["rs", "md"].contains(&ends.as_str()) {
                texts.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut named = 0;
    for (path, text) in texts {
        for line in text.split("`exeat ").skip(1).filter_map(|rest| rest.split('`').next()) {
            let mut command = Cli::command();
            for word in line.split_whitespace() {
                if !command.has_subcommands() || !word.starts_with(|c: char| c.is_ascii_lowercase()) {
                    break;
                }
                let word = word.trim_end_matches([',', ':', ';']);
                let found = command.find_subcommand(word).cloned();
                command = found.unwrap_or_else(|| panic!("{path}: `exeat {line}` names no command"));
                named += 1;
            }
        }
    }
    assert!(named > 50, "{named}");
}
