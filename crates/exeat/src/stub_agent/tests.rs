//! The stub over real sockets: exact effects of every directive, as a caller sees them on the wire.

mod calls;
mod directives;
mod pushes;
mod rig;
