//! Routes that no request ever reaches, since an earlier one takes all of theirs.

use crate::config::problem::{Place, Problems, quote};
use crate::route::Matcher;

/// Reports every route that one before it covers.
pub(super) fn check(routes: &[(Matcher, &str, Place)], problems: &mut Problems) {
    for (index, (matcher, name, place)) in routes.iter().enumerate() {
        if let Some((_, first, line)) = routes[..index].iter().find(|(earlier, _, _)| earlier.covers(matcher)) {
            let (name, first) = (quote(name), quote(first));
            let message =
                format!("route {name} is never reached: route {first} on line {} takes all its requests", line.line);
            problems.add(*place, message, format!("move it above {first}, or match less there"));
        }
    }
}
