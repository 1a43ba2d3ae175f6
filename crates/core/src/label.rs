//! What content carries, and what a receiver may get.
//!
//! Labels form a lattice: levels are ordered, tags are compartments. They join as content is combined
//! and are computed by us, never read from outside; clearances meet as work is delegated.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::Malformed;

/// The ordered list of levels of an org, lowest first; a level is known by its rank in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Levels(Vec<String>);

impl Levels {
    /// Reads a label as text: `internal+eu`.
    ///
    /// # Errors
    /// If the level isn't one of the org's, or a tag isn't a name.
    pub fn parse(&self, text: &str) -> Result<Label, Malformed> {
        let mut parts = text.split('+');
        let level = parts.next().unwrap_or_default();
        self.label(level, parts.map(str::to_owned))
    }

    /// Builds a label from a level's name and tags.
    ///
    /// # Errors
    /// If the level isn't one of the org's, or a tag isn't `[a-z0-9-]{1,64}`.
    pub fn label(&self, level: &str, tags: impl IntoIterator<Item = String>) -> Result<Label, Malformed> {
        let rank =
            self.0.iter().position(|l| l == level).and_then(|r| u8::try_from(r).ok()).ok_or_else(|| {
                Malformed::new("label", "one of the org's levels, then +tag for each tag", level)
            })?;
        let tags = tags.into_iter().map(Tag::try_from).collect::<Result<_, _>>()?;
        Ok(Label { level: Level { rank, name: level.to_owned() }, tags })
    }

    /// The names, lowest first.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The highest level with no tags: what may be seen by who may see any untagged content.
    #[must_use]
    pub fn top(&self) -> Label {
        let rank = self.0.len().saturating_sub(1);
        let name = self.0.last().cloned().unwrap_or_default();
        Label { level: Level { rank: u8::try_from(rank).unwrap_or(u8::MAX), name }, tags: BTreeSet::new() }
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self(["public", "internal", "confidential", "restricted"].map(str::to_owned).to_vec())
    }
}

impl TryFrom<Vec<String>> for Levels {
    type Error = Malformed;
    fn try_from(names: Vec<String>) -> Result<Self, Malformed> {
        let distinct = names.iter().collect::<BTreeSet<_>>().len() == names.len();
        let named = names.iter().all(|n| Tag::try_from(n.clone()).is_ok());
        if distinct && named && (1..=16).contains(&names.len()) {
            Ok(Self(names))
        } else {
            Err(Malformed::new(
                "label levels",
                "1 to 16 distinct names of [a-z0-9-], lowest first",
                &names.join(","),
            ))
        }
    }
}

impl From<Levels> for Vec<String> {
    fn from(l: Levels) -> Self {
        l.0
    }
}

/// A level: compared by rank, shown by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Level {
    rank: u8,
    name: String,
}

impl Level {
    /// Its place in the org's list, from 0.
    #[must_use]
    pub const fn rank(&self) -> u8 {
        self.rank
    }
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A compartment: `[a-z0-9-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(String);

impl TryFrom<String> for Tag {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        let ok = (1..=64).contains(&s.len())
            && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if ok { Ok(Self(s)) } else { Err(Malformed::new("tag", "1 to 64 of [a-z0-9-]", &s)) }
    }
}

impl From<Tag> for String {
    fn from(t: Tag) -> String {
        t.0
    }
}

impl Tag {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What content carries. Built only by [`Levels`], so that a level is always one of the org's.
///
/// Stored with its rank; shown at the doors as `{"level","tags"}` (see [`Label::shown`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    level: Level,
    tags: BTreeSet<Tag>,
}

/// What a receiver may get at most; the same lattice as [`Label`], seen from the other side.
pub type Ceiling = Label;

impl Label {
    /// The level.
    #[must_use]
    pub const fn level(&self) -> &Level {
        &self.level
    }
    /// The tags.
    #[must_use]
    pub const fn tags(&self) -> &BTreeSet<Tag> {
        &self.tags
    }

    /// What the combination of two contents carries: the higher level, all tags.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self {
            level: self.level.clone().max(other.level.clone()),
            tags: self.tags.union(&other.tags).cloned().collect(),
        }
    }

    /// What an actor may see that acts for another: the lower level, the common tags.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            level: self.level.clone().min(other.level.clone()),
            tags: self.tags.intersection(&other.tags).cloned().collect(),
        }
    }

    /// May content with this label reach a receiver with that ceiling? Level at most, tags within.
    #[must_use]
    pub fn flows_to(&self, ceiling: &Ceiling) -> bool {
        self.level.rank <= ceiling.level.rank && self.tags.is_subset(&ceiling.tags)
    }

    /// As the doors show it: `{"level":"internal","tags":["eu"]}`.
    #[must_use]
    pub fn shown(&self) -> serde_json::Value {
        serde_json::json!({ "level": self.level.name, "tags": self.tags })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.level.name)?;
        self.tags.iter().try_for_each(|t| write!(f, "+{}", t.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_label() -> impl Strategy<Value = Label> {
        (0..4usize, proptest::collection::btree_set("[abc]", 0..3)).prop_map(|(rank, tags)| {
            let levels = Levels::default();
            let name = levels.names()[rank].clone();
            levels.label(&name, tags).unwrap()
        })
    }

    proptest! {
        #[test]
        fn labels_are_a_lattice(a in any_label(), b in any_label(), c in any_label()) {
            prop_assert_eq!(a.join(&b), b.join(&a));
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            prop_assert_eq!(a.join(&b.join(&c)), a.join(&b).join(&c));
            prop_assert_eq!(a.meet(&b.meet(&c)), a.meet(&b).meet(&c));
            prop_assert_eq!(a.join(&a), a.clone());
            prop_assert_eq!(a.join(&a.meet(&b)), a.clone());
            prop_assert_eq!(a.meet(&a.join(&b)), a.clone());
        }

        #[test]
        fn what_is_joined_only_flows_up(a in any_label(), b in any_label(), ceiling in any_label()) {
            let both = a.flows_to(&ceiling) && b.flows_to(&ceiling);
            prop_assert_eq!(a.join(&b).flows_to(&ceiling), both);
            prop_assert!(a.flows_to(&a.join(&b)));
            prop_assert!(a.meet(&b).flows_to(&a));
        }

        #[test]
        fn a_label_reads_back_from_its_text(a in any_label()) {
            prop_assert_eq!(Levels::default().parse(&a.to_string()), Ok(a));
        }
    }

    #[test]
    fn an_unknown_level_is_refused() {
        for bad in ["", "secret", "Internal", "+eu", "internal+", "internal+E"] {
            assert!(Levels::default().parse(bad).is_err(), "{bad}");
        }
    }
}
