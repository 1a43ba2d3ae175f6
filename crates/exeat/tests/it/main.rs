//! The binary, as people and scripts use it, against a small real server that follows the API's contract.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod e2e;
#[cfg(test)]
mod exeat;
#[cfg(test)]
mod hard;
#[cfg(test)]
mod https;
#[cfg(test)]
mod licences;
#[cfg(test)]
mod requirements;
#[cfg(test)]
mod server;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod waiting;
#[cfg(test)]
mod worker;
