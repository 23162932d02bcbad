//! Removes the series of routes and limits that no rule set has any more.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

/// The name of a route, or of a limit of a route.
pub(super) type Name = (String, Option<String>);

/// The names whose series are shown, each with the number of its users: for a while, old and new rules have the same names.
#[derive(Clone, Debug, Default)]
pub(super) struct InUse(Arc<Mutex<HashMap<Name, usize>>>);

/// One use of a name. The last one removes the series.
pub(super) struct Use {
    in_use: InUse,
    name: Name,
    remove: Box<dyn Fn() + Send + Sync>,
}

impl InUse {
    /// Must be called before the series are created. `remove` is called once the name has no user.
    pub(super) fn add(&self, name: Name, remove: impl Fn() + Send + Sync + 'static) -> Arc<Use> {
        *self.0.lock().entry(name.clone()).or_default() += 1;
        Arc::new(Use { in_use: self.clone(), name, remove: Box::new(remove) })
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // Under the lock, so that it removes nothing that a new user has created.
        let mut names = self.in_use.0.lock();
        let Some(users) = names.get_mut(&self.name) else { return };
        *users -= 1;
        if *users == 0 {
            names.remove(&self.name);
            (self.remove)();
        }
    }
}

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Use").field(&self.name).finish()
    }
}
