//! Removes the series of routes and limits when no rule set uses them.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

/// The name of a route, or of a limit of a route.
pub(super) type Name = (String, Option<String>);

/// The number of users of each name. During a reload, old and new rules use the same names.
#[derive(Clone, Debug, Default)]
pub(super) struct SeriesUsers(Arc<Mutex<HashMap<Name, usize>>>);

/// A user of a name. When the last user is dropped, the series are removed.
pub(super) struct SeriesUser {
    users: SeriesUsers,
    name: Name,
    remove: Box<dyn Fn() + Send + Sync>,
}

impl SeriesUsers {
    /// Adds a user. Must be called before the series are created. When the name has no users left, `remove` is called.
    pub(super) fn add(&self, name: Name, remove: impl Fn() + Send + Sync + 'static) -> Arc<SeriesUser> {
        *self.0.lock().entry(name.clone()).or_default() += 1;
        Arc::new(SeriesUser { users: self.clone(), name, remove: Box::new(remove) })
    }
}

impl Drop for SeriesUser {
    fn drop(&mut self) {
        // Holds the lock, so that `remove` cannot remove the series of a new user.
        let mut names = self.users.0.lock();
        let Some(users) = names.get_mut(&self.name) else { return };
        *users -= 1;
        if *users == 0 {
            names.remove(&self.name);
            (self.remove)();
        }
    }
}

impl fmt::Debug for SeriesUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SeriesUser").field(&self.name).finish()
    }
}
