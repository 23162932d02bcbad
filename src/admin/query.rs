//! The parameters of a request to the API (`application/x-www-form-urlencoded`).

use super::problem::Problem;
use tidegate_rules::client::spelling;

/// The names and values, in order.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses a query. Only these names are allowed, so that a misspelt name is no request for something else.
    pub(super) fn parse(query: Option<&str>, names: &[&str]) -> Result<Self, Problem> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode(name), decode(value)) {
                (Some(name), Some(value)) if names.contains(&name.as_str()) => Ok((name, value)),
                _ => Err(Problem::bad_request(format!("allowed parameters: {}", names.join(", ")))),
            }
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    /// Returns all values of a parameter.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone()).collect()
    }

    /// Returns the value of a parameter that occurs at most once.
    pub(super) fn one(&self, name: &str) -> Result<Option<String>, Problem> {
        match &self.all(name)[..] {
            [] => Ok(None),
            [value] => Ok(Some(value.clone())),
            _ => Err(Problem::bad_request(format!("`{name}` was sent twice"))),
        }
    }

    /// Returns `minutes`: the number of minutes before the current one. 15 without the parameter.
    pub(super) fn minutes(&self) -> Result<u64, Problem> {
        match self.one("minutes")?.as_deref() {
            None | Some("15") => Ok(15),
            Some("5") => Ok(5),
            Some("1") => Ok(1),
            Some(_) => Err(Problem::bad_request("`minutes` is 1, 5 or 15")),
        }
    }
}

/// Decodes percent-encoding, and a plus as a space. Returns `None` if the encoding is broken or not UTF-8.
fn decode(text: &str) -> Option<String> {
    String::from_utf8(spelling::decode(text.as_bytes()).ok()?.into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_may_repeat() {
        let query =
            Parameters::parse(Some("value=a+b&value=%26%3d&reason="), &["value", "reason"]).expect("parameters");
        assert_eq!(query.all("value"), ["a b", "&="]);
        assert_eq!((query.one("reason"), query.one("hash")), (Ok(Some(String::new())), Ok(None)));
        assert!(query.one("value").is_err());
        for broken in ["valeu=a", "value=%2", "value=%zz", "value=%ff"] {
            assert!(Parameters::parse(Some(broken), &["value"]).is_err(), "{broken}");
        }
    }
}
