//! The claims of a verified token, also nested ones.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The claims of a verified token (RFC 7519 section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(pub Map<String, Value>);

impl Claims {
    /// Returns a claim by its name, or a nested value by a JSON pointer such as `/realm_access/roles` (RFC 6901). Returns
    /// `None` if the token lacks it.
    pub fn find(&self, claim: &str) -> Option<&Value> {
        let Some(pointer) = claim.strip_prefix('/') else { return self.0.get(claim) };
        let mut names = pointer.split('/').map(unescaped);
        let first = self.0.get(&*names.next()?)?;
        names.try_fold(first, |value, name| match value {
            Value::Object(members) => members.get(&*name),
            Value::Array(items) => items.get(index(&name)?),
            _ => None,
        })
    }

    /// Returns a claim as text. `None` if it is missing, or neither a text, a number nor a truth value. See
    /// [`find`](Self::find).
    pub fn text(&self, claim: &str) -> Option<Cow<'_, str>> {
        scalar(self.find(claim)?)
    }

    /// Returns the texts, numbers and booleans of an array, as texts.
    pub fn items(&self, claim: &str) -> impl Iterator<Item = Cow<'_, str>> {
        let items = self.find(claim).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(scalar)
    }

    /// Adds a value that [`find`](Self::find) returns for this claim. Returns `None` if another claim is at its place.
    pub fn insert(&mut self, claim: &str, value: impl Into<Value>) -> Option<()> {
        let mut names =
            claim.strip_prefix('/').map_or(vec![claim.into()], |names| names.split('/').map(unescaped).collect());
        let last = names.pop()?;
        let mut members = &mut self.0;
        for name in names {
            members = members.entry(name).or_insert_with(|| Map::new().into()).as_object_mut()?;
        }
        let value = value.into();
        members.insert(last.into(), value.clone()).is_none_or(|before| before == value).then_some(())
    }
}

/// Returns `true` if this is the name of a claim, or a valid JSON pointer.
pub fn is_claim(text: &str) -> bool {
    let is_escape = |rest: &str| rest.starts_with(['0', '1']);
    !text.is_empty() && (!text.starts_with('/') || text.split('~').skip(1).all(is_escape))
}

/// Returns a text, a number or a boolean as text. Returns `None` for other values.
pub(super) fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Replaces the escapes of a name in a pointer.
fn unescaped(name: &str) -> Cow<'_, str> {
    if name.contains('~') { name.replace("~1", "/").replace("~0", "~").into() } else { name.into() }
}

/// Parses the index of an item, which has no leading zeros.
fn index(name: &str) -> Option<usize> {
    let is_index = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    name.parse().ok().filter(|_| is_index)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pointers_find_nested_values() {
        let claims = json!({
            "sub": "ann",
            "https://a.test/plan": "pro",
            "realm_access": { "roles": ["user", "admin"], "a/b": 1, "m~n": 2, "": 3, "~1": 4 },
            "/x": 5,
        });
        let Value::Object(claims) = claims else { panic!("no object") };
        let claims = Claims(claims);
        for (claim, found) in [
            ("sub", json!("ann")),
            ("/sub", json!("ann")),
            ("https://a.test/plan", json!("pro")),
            ("/realm_access/roles", json!(["user", "admin"])),
            ("/realm_access/roles/1", json!("admin")),
            ("/realm_access/a~1b", json!(1)),
            ("/realm_access/m~0n", json!(2)),
            ("/realm_access/", json!(3)),
            ("/realm_access/~01", json!(4)),
            ("/~1x", json!(5)),
        ] {
            assert_eq!(claims.find(claim), Some(&found), "{claim}");
        }
        for claim in [
            "realm_access/roles",
            "/realm_access/roles/01",
            "/realm_access/roles/+1",
            "/realm_access/roles/-",
            "/realm_access/roles/2",
            "/sub/0",
            "/x",
            "/",
            "/none/x",
            "/realm_access/roles/",
        ] {
            assert_eq!(claims.find(claim), None, "{claim}");
        }
        assert_eq!(claims.text("/realm_access/a~1b").as_deref(), Some("1"));
        assert_eq!(claims.text("/realm_access/roles"), None);
        assert_eq!(claims.items("/realm_access/roles").collect::<Vec<_>>(), ["user", "admin"]);
        assert_eq!(claims.items("sub").count(), 0);
    }

    #[test]
    fn inserted_text_is_found() {
        let mut claims = Claims::default();
        for claim in ["sub", "/a/b", "/a/c~1d", "/~1x", "/list/0"] {
            assert_eq!(claims.insert(claim, claim), Some(()), "{claim}");
        }
        for claim in ["sub", "/a/b", "/a/c~1d", "/~1x", "/list/0"] {
            assert_eq!(claims.text(claim).as_deref(), Some(claim));
        }
        assert_eq!((claims.insert("/sub/x", "1"), claims.insert("/a", "1")), (None, None));
    }

    #[test]
    fn claims_are_names_or_pointers() {
        for claim in ["sub", "a b", "https://a.test/plan", "/a/b", "/a~0~1b", "a~2", "/"] {
            assert!(is_claim(claim), "{claim}");
        }
        for claim in ["", "/a~", "/a~2b", "/~"] {
            assert!(!is_claim(claim), "{claim}");
        }
    }
}
