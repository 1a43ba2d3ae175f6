//! The embedded store keeps the contract, and refuses to be opened where it couldn't.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod likeness;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod writing;
