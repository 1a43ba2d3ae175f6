//! A2A on the wire: bytes to words of ours and back. Pure: no socket, no clock, no randomness.
//!
//! Two dialects are written, 1.0 and 0.3 (0.2 falls out of the second); what is *read* is recognised by its
//! shape and not by the dialect that was asked for, because peers mix them. Source: the A2A specification
//! 1.0.1 and its proto, the 0.3 JSON schema, and what the published SDKs were seen to send.
//!
//! Promises:
//! - No byte string makes a reader panic, recurse without bound or allocate without bound ([`Limits`]).
//! - An unknown state is never an ending, an unknown shape never a success.
//! - A request is built from an allow list of fields, as canonical JSON: equal input gives equal bytes, and a
//!   1.0 peer receives exactly the parts that were approved.
//! - No error of this crate quotes a body. The one text of a peer that is passed on is the `message` of an
//!   RPC error, stripped of control characters and cut to a length.
//!
//! The size of a body is bounded by whoever reads it from the socket; its media type is never consulted.

pub mod answer;
pub mod card;
mod dialect;
mod fault;
mod json;
mod part;
pub mod push;
pub mod request;
mod shape;
mod state;
mod view;

pub use dialect::{Binding, Dialect, Interface, ProtocolPin, UnknownPin};
pub use fault::{ErrorClass, Refusal, RpcError};
pub use json::{BadJson, Limits};
pub use state::State;
pub use view::{ArtifactView, MessageView, Role, TaskView};
