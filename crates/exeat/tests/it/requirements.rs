//! The tables of requirements and of cases name real tests: each exists, and none is ignored.

use std::collections::BTreeSet;
use std::path::Path;

const SIM: &str = "sim_every_promise_holds_whatever_fails_and_whenever";

/// Every test of the workspace: functions under `#[test]` or `#[tokio::test]`, and the promises of contract suites.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_suite = path.components().any(|c| c.as_os_str() == "contract");
            tests_of(&std::fs::read_to_string(&path).unwrap(), is_suite, found);
        }
    }
}

fn tests_of(text: &str, is_suite: bool, found: &mut BTreeSet<String>) {
    let (mut is_test, mut is_ignored) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            (is_test, is_ignored) = (true, false);
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if let Some((before, after)) = line.split_once("fn ") {
            let is_promise = is_suite && before == "pub async ";
            if (is_test || is_promise) && !is_ignored {
                found.insert(after.split(['(', '<']).next().unwrap().to_owned());
            }
            is_test = false;
        }
    }
}

/// A table of `docs`: its rows' ids and the tests that each names, in the last of so many cells.
fn held(file: &str, prefix: &str, cells: usize, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = BTreeSet::new();
    tests_below(&root.join("crates"), &mut known);
    let table = std::fs::read_to_string(root.join("docs").join(file)).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|l| l.starts_with(&format!("| {prefix}")))
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= at_least, "{file} has {} rows", rows.len());
    let mut ids = BTreeSet::new();
    for row in rows {
        assert_eq!(row.len(), cells, "{row:?}");
        let id = row[0];
        assert!(ids.insert(id), "{id} is there twice");
        let named: Vec<&str> = row[cells - 1].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{id} names no test");
        for name in named {
            let name = if name == "sim" { SIM } else { name };
            assert!(known.contains(name), "{id} names {name}, which doesn't exist or is ignored");
        }
    }
}

#[test]
fn every_test_that_the_table_of_requirements_names_exists_and_runs() {
    held("requirements.md", "R-", 3, 70);
}

#[test]
fn every_test_that_the_table_of_cases_names_exists_and_runs() {
    held("cases.md", "O-", 4, 36);
}
