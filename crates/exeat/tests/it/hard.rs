//! Hard tests of the gateway itself: a real server on a real database, a foreign agent, workers, and all that
//! goes wrong: the server is killed, files are changed, everything at the doors is bad, secrets come back.

mod adverse;
mod cases;
mod doors;
mod http;
mod kill;
mod ledger;
mod rig;
mod rotation;
mod secrets;
mod start;
mod work;
