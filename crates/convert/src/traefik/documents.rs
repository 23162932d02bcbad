//! The files as documents of one form: `{ http: { routers, services, middlewares } }`. Labels of containers and resources of
//! Kubernetes are brought into this form.

use super::{labels, manifests, toml};
use crate::error::ConvertError;
use crate::sources::{Input, Text};
use crate::tree::{self, Node};

/// A document of a file.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) text: Text,
    pub(super) root: Node,
}

/// Reads all files.
///
/// # Errors
/// Fails if a file cannot be read or parsed.
pub(super) fn read(input: &mut Input<'_>) -> Result<Vec<Document>, ConvertError> {
    let mut documents = Vec::new();
    for path in input.paths {
        let text = input.read(path)?;
        if is_toml(&text) {
            let root = toml::read(&text)?;
            documents.push(Document { text, root });
            continue;
        }
        for root in tree::read(&text.name, &text.text)? {
            let roots = match () {
                () if root.get("kind").is_some() => manifests::convert(&root),
                () if root.get("services").is_some() && root.get("http").is_none() => labels::convert(&root),
                () => vec![root],
            };
            documents.extend(roots.into_iter().map(|root| Document { text: text.clone(), root }));
        }
    }
    Ok(documents)
}

/// Returns `true` for a TOML file.
pub(super) fn is_toml(text: &Text) -> bool {
    let is_table =
        |line: &str| line.trim_start().starts_with("[http.") || line.trim_start().starts_with("[entryPoints");
    text.name.ends_with(".toml") || text.text.lines().any(is_table)
}
