//! The interpretation of request paths: `requests`.

use super::{Checked, part};
use crate::config::file::File;
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::rules::Requests;

pub(super) fn requests(file: &File, root: &Node, problems: &mut Problems) -> Checked<Requests> {
    let node = root.at("requests");
    let Some(written) = part(&file.requests, root, "requests", problems)? else { return Ok(Requests::default()) };
    let encoded_slash = part(&written.encoded_slash, node, "encoded_slash", problems)?;
    Ok(Requests { encoded_slash: encoded_slash.copied().unwrap_or_default() })
}
