//! Where each value of the configuration comes from: the layers, one over the other, and who set what last.
//!
//! A setting that is refused is named with its place: a line of the file, a variable of the environment, a flag.

use std::collections::BTreeMap;
use std::fmt;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::shape::Raw;
use super::{BadConfig, DEFAULTS};

/// Who set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody: it is the default.
    Default,
    /// A line of the file.
    File { path: String, line: usize },
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    /// As what it is about begins: `exeat.toml:3: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => Ok(()),
            Self::File { path, line } => write!(f, "{path}:{line}: "),
            Self::Environment(name) => write!(f, "{name}: "),
            Self::Flag(flag) => write!(f, "{flag}: "),
        }
    }
}

/// Who set each setting that isn't the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Of a setting, e.g. `hop.deadline`.
    pub(super) fn of(&self, key: &str) -> Origin {
        self.0.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// A value that the setting doesn't take.
    pub(super) fn bad_value(&self, key: &str, why: String) -> BadConfig {
        BadConfig::BadValue { key: key.to_owned(), origin: self.of(key), why }
    }

    /// A flag set it.
    pub(super) fn by_flag(&mut self, key: &str, flag: &'static str) {
        self.0.insert(key.to_owned(), Origin::Flag(flag));
    }
}

/// The values so far, and who set them.
pub(super) struct Layers {
    table: Table,
    origins: Origins,
}

impl Layers {
    /// Nothing but the defaults.
    pub(super) fn of_defaults() -> Result<Self, BadConfig> {
        Ok(Self { table: table_of("defaults", DEFAULTS)?, origins: Origins::default() })
    }

    /// Lays a file over them.
    pub(super) fn file(&mut self, path: &str, text: &str) -> Result<(), BadConfig> {
        let over = table_of(path, text)?;
        let mut lines = BTreeMap::new();
        if let Ok(spanned) = DeTable::parse(text) {
            lines_of(spanned.get_ref(), text, "", &mut lines);
        }
        let of = |key: &str| {
            let line = lines.get(key).copied().unwrap_or(1);
            Origin::File { path: path.to_owned(), line }
        };
        overlay(&mut self.table, over, "", &of, &mut self.origins)
    }

    /// Lays the environment over them.
    pub(super) fn environment(&mut self, environment: &BTreeMap<String, String>) -> Result<(), BadConfig> {
        if let Some(unknown) = environment.keys().find(|name| is_misspelt(&self.table, name)) {
            let origin = Origin::Environment(unknown.clone());
            return Err(BadConfig::UnknownKey { key: unknown.clone(), origin });
        }
        for (key, value) in &mut self.table {
            match value {
                Value::Table(section) => {
                    for (inner, value) in section {
                        let name = format!("EXEAT_{}_{}", key.to_uppercase(), inner.to_uppercase());
                        set(value, &format!("{key}.{inner}"), name, environment, &mut self.origins)?;
                    }
                }
                value => {
                    let name = format!("EXEAT_{}", key.to_uppercase());
                    set(value, key, name, environment, &mut self.origins)?;
                }
            }
        }
        Ok(())
    }

    /// The values in their shape. One that doesn't fit is named: it is the one that doesn't fit alone either.
    pub(super) fn read(self) -> Result<(Raw, Origins), BadConfig> {
        match Value::Table(self.table.clone()).try_into::<Raw>() {
            Ok(raw) => Ok((raw, self.origins)),
            Err(e) => Err(self.culprit()?.unwrap_or_else(|| BadConfig::Syntax {
                source_name: "configuration".to_owned(),
                why: e.message().to_owned(),
            })),
        }
    }

    fn culprit(&self) -> Result<Option<BadConfig>, BadConfig> {
        for key in self.origins.0.keys() {
            let mut alone = table_of("defaults", DEFAULTS)?;
            let Some(value) = found(&mut self.table.clone(), key).cloned() else { continue };
            if let Some(place) = found(&mut alone, key) {
                *place = value;
            }
            if let Err(e) = Value::Table(alone).try_into::<Raw>() {
                return Ok(Some(self.origins.bad_value(key, e.message().to_owned())));
            }
        }
        Ok(None)
    }
}

fn found<'t>(table: &'t mut Table, key: &str) -> Option<&'t mut Value> {
    match key.split_once('.') {
        Some((section, inner)) => table.get_mut(section)?.as_table_mut()?.get_mut(inner),
        None => table.get_mut(key),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or_default().matches('\n').count() + 1
}

/// The line of each key, as `section.key`.
fn lines_of(table: &DeTable<'_>, text: &str, path: &str, lines: &mut BTreeMap<String, usize>) {
    for (key, value) in table {
        let full = joined(path, key.get_ref());
        if let DeValue::Table(section) = value.get_ref() {
            lines_of(section, text, &full, lines);
        }
        lines.insert(full, line_at(text, key.span().start));
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn table_of(name: &str, text: &str) -> Result<Table, BadConfig> {
    text.parse::<Table>().map_err(|e| {
        let line = line_at(text, e.span().map_or(0, |s| s.start));
        BadConfig::Syntax { source_name: format!("{name}:{line}"), why: e.message().to_owned() }
    })
}

fn overlay(
    under: &mut Table,
    over: Table,
    path: &str,
    origin: &dyn Fn(&str) -> Origin,
    origins: &mut Origins,
) -> Result<(), BadConfig> {
    for (key, value) in over {
        let full = joined(path, &key);
        let origin_of_it = origin(&full);
        match (under.get_mut(&key), value) {
            (None, _) => return Err(BadConfig::UnknownKey { key: full, origin: origin_of_it }),
            (Some(Value::Table(u)), Value::Table(o)) => overlay(u, o, &full, origin, origins)?,
            (Some(u), v) if std::mem::discriminant(u) == std::mem::discriminant(&v) => {
                *u = v;
                origins.0.insert(full, origin_of_it);
            }
            (Some(u), v) => {
                let why = format!("expected {}, got {}", u.type_str(), v.type_str());
                return Err(BadConfig::BadValue { key: full, origin: origin_of_it, why });
            }
        }
    }
    Ok(())
}

/// Edits between a name and a setting's that are taken for a slip: other programs' variables are further off.
const SLIP: usize = 2;

/// Is it in the name of a section and of none of its settings, or nearly a setting's? A safety that is misspelt isn't
/// silently off.
fn is_misspelt(table: &Table, name: &str) -> bool {
    let in_section = |(key, value): (&String, &Value)| {
        let inner = name.strip_prefix(&format!("EXEAT_{}_", key.to_uppercase()));
        let settings = value.as_table();
        settings.zip(inner).is_some_and(|(t, inner)| !t.keys().any(|k| k.to_uppercase() == inner))
    };
    let is_plain = |key: &String| *name == format!("EXEAT_{}", key.to_uppercase());
    let nearly = || names(table).any(|known| known != name && strsim::levenshtein(&known, name) <= SLIP);
    !table.keys().any(is_plain)
        && !names(table).any(|n| n == name)
        && (table.iter().any(in_section) || nearly())
}

/// The variables of all settings.
fn names(table: &Table) -> impl Iterator<Item = String> {
    table.iter().flat_map(|(key, value)| {
        let inner = value.as_table().map(|t| t.keys().map(|k| format!("{key}_{k}")).collect::<Vec<_>>());
        inner.unwrap_or_else(|| vec![key.clone()]).into_iter().map(|n| format!("EXEAT_{}", n.to_uppercase()))
    })
}

fn set(
    value: &mut Value,
    key: &str,
    name: String,
    environment: &BTreeMap<String, String>,
    origins: &mut Origins,
) -> Result<(), BadConfig> {
    let Some(text) = environment.get(&name) else { return Ok(()) };
    let origin = Origin::Environment(name);
    let bad =
        |why: &str| BadConfig::BadValue { key: key.to_owned(), origin: origin.clone(), why: why.to_owned() };
    *value = match value {
        Value::Boolean(_) => Value::Boolean(text.parse().map_err(|_| bad("expected true or false"))?),
        Value::Integer(_) => Value::Integer(text.parse().map_err(|_| bad("expected a whole number"))?),
        Value::Array(of) => {
            let numbers = of.first().is_some_and(Value::is_integer);
            let items = text.split(',').map(str::trim).filter(|t| !t.is_empty());
            let parsed: Result<Vec<Value>, BadConfig> = items
                .map(|t| match numbers {
                    true => {
                        t.parse().map(Value::Integer).map_err(|_| bad("expected whole numbers, with commas"))
                    }
                    false => Ok(Value::String(t.to_owned())),
                })
                .collect();
            Value::Array(parsed?)
        }
        _ => Value::String(text.clone()),
    };
    origins.0.insert(key.to_owned(), origin);
    Ok(())
}
