//! How many descriptors a process may have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the system lets it, without being asked as root; says how many.
pub fn raise() -> io::Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)))
}
