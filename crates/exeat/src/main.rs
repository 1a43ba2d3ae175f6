//! The `exeat` command.
fn main() {}
