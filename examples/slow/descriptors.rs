//! Raises the limit of file descriptors.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit. Returns the new limit.
pub fn raise() -> io::Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)))
}
