//! The real binary end to end: a server, foreign agents and workers as processes of their own on loopback, and
//! everything that a person does done by the commands that a person types.

mod approvals;
mod chain;
mod dead_letters;
mod doctor;
mod doors;
mod first_steps;
mod foreign_peers;
mod lists;
mod nothing_leaves;
mod outcomes;
mod probes;
mod push_and_sweep;
mod rig;
mod says;
mod turns;
mod unknown;
