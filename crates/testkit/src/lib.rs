//! Placeholder header; the room's own words come with its first code.
