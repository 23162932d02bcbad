//! Marks the gateways whose version or rule file differs from the others.

use super::FleetGateway;

/// The properties that are compared, with their names.
type Property = (&'static str, fn(&FleetGateway) -> Option<&str>);

const PROPERTIES: [Property; 2] =
    [("version", |gateway| gateway.version.as_deref()), ("hash", |gateway| gateway.hash.as_deref())];

/// Marks the gateways that do not have the version or the hash of more than half of all gateways. Returns what differs. A
/// gateway whose rules did not come from a file has no hash to compare. A gateway that announces nothing about itself has
/// another version.
pub(super) fn mark_differences(gateways: &mut [FleetGateway]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (name, read) in PROPERTIES {
        let values: Vec<Option<String>> = gateways.iter().map(|one| read(one).map(str::to_owned)).collect();
        let known: Vec<&String> = values.iter().flatten().collect();
        let count = |value: &String| known.iter().filter(|other| **other == value).count();
        let usual = known.iter().find(|value| count(value) * 2 > known.len()).copied();
        let is_other = |gateway: &FleetGateway, value: &Option<String>| match value {
            Some(value) => Some(value) != usual,
            None => name == "version" && gateway.version.is_none(),
        };
        for (gateway, value) in gateways.iter_mut().zip(&values) {
            if is_other(gateway, value) {
                gateway.differs.push(name);
            }
        }
        if gateways.iter().any(|gateway| gateway.differs.contains(&name)) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway((version, hash): (Option<&str>, Option<&str>)) -> FleetGateway {
        let text = |value: Option<&str>| value.map(str::to_owned);
        FleetGateway { version: text(version), hash: text(hash), ..FleetGateway::default() }
    }

    /// Returns what differs in all, and for each gateway.
    fn differences(of: &[(Option<&str>, Option<&str>)]) -> (Vec<&'static str>, Vec<Vec<&'static str>>) {
        let mut gateways: Vec<_> = of.iter().copied().map(gateway).collect();
        let found = mark_differences(&mut gateways);
        (found, gateways.into_iter().map(|gateway| gateway.differs).collect())
    }

    #[test]
    fn gateways_without_the_majority_differ() {
        let (one, two) = ((Some("1"), Some("a")), (Some("1"), Some("b")));
        assert_eq!(differences(&[one, one, one]), (vec![], vec![vec![]; 3]));
        assert_eq!(differences(&[one, two, one]), (vec!["hash"], vec![vec![], vec!["hash"], vec![]]));
        assert_eq!(differences(&[one, two]), (vec!["hash"], vec![vec!["hash"]; 2]));
        assert_eq!(differences(&[one]), (vec![], vec![vec![]]));
    }

    #[test]
    fn unknown_gateway_has_another_version() {
        let (known, unknown, no_file) = ((Some("1"), Some("a")), (None, None), (Some("1"), None));
        assert_eq!(differences(&[known, unknown]), (vec!["version"], vec![vec![], vec!["version"]]));
        assert_eq!(differences(&[known, no_file]), (vec![], vec![vec![]; 2]));
    }
}
