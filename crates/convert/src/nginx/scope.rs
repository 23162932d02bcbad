//! The directives of a block, with those that it inherits.

use std::collections::HashMap;
use std::rc::Rc;

use super::syntax::Directive;
use super::values::variables::Assigned;

/// The most variables that `set` assigns. Values of others are not known.
const MAX_ASSIGNED: usize = 200;

/// A block, and the blocks around it.
#[derive(Debug)]
pub(super) struct Scope<'c> {
    pub(super) outer: Option<Rc<Scope<'c>>>,
    pub(super) directives: &'c [Directive],
    by_name: HashMap<&'c str, Vec<&'c Directive>>,
    /// The values of `set` in this block and those around it.
    pub(super) assigned: Rc<Assigned>,
}

// === impl Scope ===

impl<'c> Scope<'c> {
    pub(super) fn new(outer: Option<&Rc<Self>>, directives: &'c [Directive]) -> Rc<Self> {
        let mut by_name: HashMap<&str, Vec<&Directive>> = HashMap::new();
        for directive in directives {
            by_name.entry(directive.name()).or_default().push(directive);
        }
        let mut assigned = outer.map(|outer| Rc::clone(&outer.assigned)).unwrap_or_default();
        if by_name.contains_key("set") || by_name.contains_key("if") {
            assign(directives, false, Rc::make_mut(&mut assigned));
        }
        Rc::new(Self { outer: outer.map(Rc::clone), directives, by_name, assigned })
    }

    /// Returns the directives with this name in this block, without inherited ones.
    pub(super) fn own(&self, name: &str) -> &[&'c Directive] {
        self.by_name.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the first directive with this name in this block, without inherited ones.
    pub(super) fn own_first(&self, name: &str) -> Option<&'c Directive> {
        self.own(name).first().copied()
    }

    /// Returns the directives with this name in the innermost block that has any. They replace all outer ones.
    pub(super) fn all(&self, name: &str) -> Vec<&'c Directive> {
        let mut scope = Some(self);
        while let Some(current) = scope {
            if !current.own(name).is_empty() {
                return current.own(name).to_vec();
            }
            scope = current.outer.as_deref();
        }
        Vec::new()
    }

    /// Returns the last directive with this name in the innermost block that has one.
    pub(super) fn last(&self, name: &str) -> Option<&'c Directive> {
        self.all(name).last().copied()
    }

    /// Returns `true` if the innermost directive with this name is `on`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.last(name).and_then(|directive| directive.arg(0)) == Some("on")
    }
}

/// Adds the values of `set`. A variable that an `if` changes has several values.
fn assign(directives: &[Directive], is_conditional: bool, assigned: &mut Assigned) {
    for directive in directives {
        match (directive.name(), directive.args.as_slice()) {
            ("set", [name, value]) if assigned.len() < MAX_ASSIGNED => {
                let name = name.text.trim_start_matches('$');
                // A value that contains its own variable would never end.
                let value = Some(value.text.clone()).filter(|value| !is_conditional && !value.contains(name));
                assigned.insert(name.to_owned(), value);
            }
            ("if", _) => assign(directive.inner(), true, assigned),
            _ => {}
        }
    }
}
