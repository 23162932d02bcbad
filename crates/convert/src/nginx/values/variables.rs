//! The variables that `map`, `geo` and `set` define.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::Unknown;
use super::branch::{Branch, Piece, product};
use super::geo::Geo;
use super::map::Map;
use super::source::Source;
use super::template::{Part, parts};
use crate::nginx::syntax::Directive;

/// The deepest chain of variables.
const MAX_DEPTH: usize = 8;

/// The most entries of `map` and `geo` that are read again for other values of `set`.
const MAX_WORK: usize = 200_000;

/// The variables of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    defined: HashMap<String, Definition>,
    /// The values of defined variables without values of `set`.
    known: RefCell<HashMap<String, Result<Vec<Branch>, Unknown>>>,
    /// The entries that were read.
    work: Cell<usize>,
}

#[derive(Clone, Debug)]
enum Definition {
    Map(Map),
    Geo {
        source: Source,
        geo: Geo,
    },
    /// A definition that is not supported.
    Unknown(Unknown),
}

/// Values of `set` in a server or a location, by the name of the variable. `None` if there are several.
pub(crate) type Assigned = HashMap<String, Option<String>>;

// === impl Variables ===

impl Variables {
    /// Reads the `map`, `geo` and `split_clients` blocks of `http`.
    pub(crate) fn read(http: &[Directive]) -> Self {
        let mut variables = Self::default();
        for directive in http {
            let (name, definition) = match (directive.name(), directive.args.as_slice()) {
                ("map", [source, name]) => (name, Map::parse(&source.text, directive.inner()).map(Definition::Map)),
                ("geo", [name]) => (name, geo(Source::Address, directive)),
                ("geo", [source, name]) => (name, geo(Source::of(source.text.trim_start_matches('$')), directive)),
                ("split_clients", [_, name]) => (name, Err("`split_clients` divides clients by a hash".to_owned())),
                _ => continue,
            };
            let definition = definition.unwrap_or_else(Definition::Unknown);
            variables.defined.insert(name.text.trim_start_matches('$').to_owned(), definition);
        }
        variables
    }

    /// Returns the values of a text with variables.
    pub(crate) fn values(&self, text: &str, assigned: &Assigned) -> Result<Vec<Branch>, Unknown> {
        self.text(text, assigned, 0)
    }

    /// Returns the value of a text whose variables have only one value, which contains no part of the request. `map` and
    /// `geo` have several values.
    pub(crate) fn constant(&self, text: &str, assigned: &Assigned) -> Option<String> {
        let is_defined = |part: &Part| matches!(part, Part::Variable(name) if self.defined.contains_key(name));
        if parts(text).iter().any(is_defined) {
            return None;
        }
        match self.values(text, assigned).ok()?.as_slice() {
            [only] => only.constant(),
            _ => None,
        }
    }

    fn text(&self, text: &str, assigned: &Assigned, depth: usize) -> Result<Vec<Branch>, Unknown> {
        if depth > MAX_DEPTH {
            return Err(format!("its variables are nested more than {MAX_DEPTH} levels deep"));
        }
        let mut branches = vec![Branch::default()];
        for part in parts(text) {
            let next = match part {
                Part::Text(text) => vec![Branch::of(Piece::Text(text))],
                Part::Variable(name) => self.variable(&name, assigned, depth)?,
            };
            branches = product(&branches, &next)?;
        }
        Ok(branches)
    }

    fn variable(&self, name: &str, assigned: &Assigned, depth: usize) -> Result<Vec<Branch>, Unknown> {
        match (assigned.get(name), self.defined.get(name)) {
            (Some(Some(value)), _) => self.text(value, assigned, depth + 1),
            (Some(None), _) => Err(format!("`set` gives `${name}` several values")),
            (None, None) => Ok(vec![Branch::of(Piece::Source(Source::of(name)))]),
            (None, Some(definition)) if assigned.is_empty() => {
                if let Some(known) = self.known.borrow().get(name) {
                    return known.clone();
                }
                let values = self.defined(definition, assigned, depth);
                self.known.borrow_mut().insert(name.to_owned(), values.clone());
                values
            }
            (None, Some(definition)) => self.defined(definition, assigned, depth),
        }
    }

    fn defined(&self, definition: &Definition, assigned: &Assigned, depth: usize) -> Result<Vec<Branch>, Unknown> {
        self.work.set(self.work.get().saturating_add(definition.len()));
        if self.work.get() > MAX_WORK {
            return Err("its variables have too many entries".to_owned());
        }
        match definition {
            Definition::Unknown(reason) => Err(reason.clone()),
            Definition::Map(map) => self.map(map, assigned, depth),
            Definition::Geo { source: Source::Address, geo } => {
                self.each(geo.groups(), &Branch::default(), assigned, depth)
            }
            Definition::Geo { .. } => Err("`geo` reads another value than the address".to_owned()),
        }
    }

    fn map(&self, map: &Map, assigned: &Assigned, depth: usize) -> Result<Vec<Branch>, Unknown> {
        let mut branches = Vec::new();
        for outer in self.text(&map.source, assigned, depth + 1)? {
            let groups = match (outer.constant(), outer.only_source()) {
                (Some(text), _) => vec![(Branch::default(), map.value_of(&text)?.to_owned())],
                (None, Some(source)) => map.groups(source)?,
                (None, None) => return Err("`map` compares a text of several variables".to_owned()),
            };
            branches.extend(self.each(groups, &outer, assigned, depth)?);
        }
        Ok(merged(branches))
    }

    /// Returns the branches of the values of each group.
    fn each(
        &self,
        groups: Vec<(Branch, String)>,
        outer: &Branch,
        assigned: &Assigned,
        depth: usize,
    ) -> Result<Vec<Branch>, Unknown> {
        let mut branches = Vec::new();
        for (group, value) in groups {
            let values = self.text(&value, assigned, depth + 1)?;
            branches.extend(values.iter().map(|value| value.under(&group).under(outer)));
        }
        Ok(branches)
    }
}

// === impl Definition ===

impl Definition {
    /// Returns the number of entries.
    fn len(&self) -> usize {
        match self {
            Self::Map(map) => map.len(),
            Self::Geo { geo, .. } => geo.len(),
            Self::Unknown(_) => 0,
        }
    }
}

fn geo(source: Source, directive: &Directive) -> Result<Definition, Unknown> {
    Geo::parse(directive.inner()).map(|geo| Definition::Geo { source, geo })
}

/// Joins branches of equal values where one condition can stand for both: each value has its own buckets in the rule file,
/// and equal keys share a bucket in nginx.
fn merged(branches: Vec<Branch>) -> Vec<Branch> {
    let mut merged: Vec<Branch> = Vec::new();
    for branch in branches {
        let joined =
            merged.iter_mut().find(|other| other.value == branch.value).is_some_and(|other| other.join(&branch));
        if !joined {
            merged.push(branch);
        }
    }
    merged
}
