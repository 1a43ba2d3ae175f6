//! What bytes from outside are thrown at: one function per parser, with the laws that hold whatever the bytes are.
//!
//! A fuzzer calls them with bytes of its own (`make fuzz`); the tests call them with the corpus, which is what fuzzers
//! found worth keeping and what people wrote down. A panic, also of an assertion, is a fault of the product.
//!
//! There is no target for server-sent events: nothing here reads a foreign agent's stream.
#![forbid(unsafe_code)]

#[path = "../../crates/server/tests/it/admin_rig.rs"]
#[allow(dead_code, reason = "the rig's server is this target's, the rest is for its tests")]
mod admin_rig;
mod doors;
mod laws;
#[path = "../../crates/server/tests/it/rig.rs"]
#[allow(dead_code, reason = "the rig's server is this target's, the rest is for its tests")]
mod rig;

pub use doors::doors;
pub use laws::{card, config, expression, ledger, payload, policy, push, results, schema, tokens, workflow};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("config", config),
    ("workflow", workflow),
    ("expression", expression),
    ("policy", policy),
    ("schema", schema),
    ("doors", doors),
    ("card", card),
    ("results", results),
    ("push", push),
    ("tokens", tokens),
    ("payload", payload),
    ("ledger", ledger),
];
