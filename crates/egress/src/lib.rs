//! The only way out: every connection to a host that an entry, a card, a message or a tenant names is made
//! here, and nowhere else.
//!
//! A URL becomes a [`target::Target`] or is refused before any lookup; its name is resolved once, all its
//! addresses are checked ([`address`]), and the connection goes to a checked one (`connect`). One exchange
//! (`exchange`) is bounded in time and size and says whether the peer can have seen the request. Secrets
//! are handles ([`credential`]) until the moment of use, and are taken out of whatever comes back. What may be
//! said to whom is [`a2a`]'s, which takes a permit for every contact; the connector itself is private, so that
//! no other room can dial without one:
//!
//! ```compile_fail,E0603
//! use exeat_egress::exchange::Connector;
//! ```

pub mod a2a;
pub mod address;
mod connect;
pub mod credential;
pub mod entry;
mod exchange;
pub mod resolve;
pub mod target;

pub use connect::BadTls;
pub use connect::proxy::Proxy;
pub use exchange::{Bounds, MonotonicClock};

#[cfg(test)]
mod rig;
