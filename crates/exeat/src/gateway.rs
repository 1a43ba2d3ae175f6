//! The gateway of this process: configuration, key material, record, policies, way out, doors and loops,
//! wired up once. The only room that knows all the others.

pub(crate) mod first_start;
pub(crate) mod keys;
pub(crate) mod system;
pub(crate) mod wire_up;
