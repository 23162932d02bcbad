//! Limits that read the bodies of requests.

use crate::check::Checked;
use crate::file::located::{Located, ValueOrMap};
use crate::file::{Limit, Permits};
use crate::problem::{Location, Problems, quote};
use tidegate_rules::limits::rule;
use tidegate_usage::{MemberPointers, Pointer};

/// Reports limits that read bodies in a layer, which does not read them.
pub(crate) fn reject_bodies<'f>(limits: impl Iterator<Item = &'f Limit>, problems: &mut Problems) -> Checked<()> {
    let mut checked = Ok(());
    for limit in limits {
        if let Some(ValueOrMap::Map(Permits { usage, json, .. })) = limit.permits.get() {
            checked = reject(usage, "usage", problems).and(reject(json, "json", problems)).and(checked);
        }
        if let Some(when) = limit.when.get() {
            checked = reject(&when.json, "json", problems).and(checked);
        }
        for client in limit.client.items() {
            if client.get().is_some_and(|text| text.starts_with("json:")) {
                checked = reject(client, "json", problems).and(checked);
            }
        }
    }
    checked
}

fn reject<T>(key: &Located<T>, name: &str, problems: &mut Problems) -> Checked<()> {
    if !key.is_present() {
        return Ok(());
    }
    let message = format!("{} works only in the gateway: a layer does not read bodies", quote(name));
    Err(key.report(message, "leave it out", problems))
}

/// Reports a route whose limits read too many values of bodies.
pub(crate) fn check_number(limits: &[rule::Limit], location: Location, problems: &mut Problems) -> Checked<()> {
    let pointers: Vec<&Pointer> = limits.iter().flat_map(rule::Limit::body_pointers).collect();
    match MemberPointers::new(pointers) {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("the limits read too many values of bodies: {error}");
            Err(problems.add(location, message, "use fewer JSON pointers, or shorter ones"))
        }
    }
}
