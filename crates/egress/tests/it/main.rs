//! The transport as a whole: permits in, real sockets out.

mod agent;
mod cards;
mod contacts;
mod peers;
mod reach;
mod sends;
