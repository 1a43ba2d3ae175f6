//! The walks over the record in memory: simulated, and counted.
#![cfg(test)]

mod sim;
