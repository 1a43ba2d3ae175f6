//! Any target, by the name in `EXEAT_FUZZ`.
#![no_main]

use std::sync::LazyLock;

use exeat_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("EXEAT_FUZZ").unwrap_or_default();
    let names = TARGETS.map(|(n, _)| n).join(", ");
    let target = TARGETS.into_iter().find(|(n, _)| *n == name);
    target.unwrap_or_else(|| panic!("EXEAT_FUZZ must be one of {names}"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.1(bytes));
