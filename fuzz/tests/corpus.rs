//! Every input of the corpus goes through its target, without the fuzzer.

use std::path::Path;

use exeat_fuzz::TARGETS;

#[test]
fn everything_that_was_found_worth_keeping_is_taken_or_refused_and_breaks_no_law() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let folder = corpus.join(name);
        let mut inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
        inputs.sort();
        assert!(inputs.len() > 5, "{name} has a corpus");
        for input in inputs {
            println!("{}", input.display());
            target(&std::fs::read(&input).unwrap());
        }
    }
}
