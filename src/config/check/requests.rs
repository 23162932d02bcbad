//! The interpretation of request paths: `requests`.

use super::{Checked, part};
use crate::config::file::{self, File};
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::rules::{EncodedSlash, Requests};

pub(super) fn requests(file: &File, root: &Node, problems: &mut Problems) -> Checked<Requests> {
    let node = root.at("requests");
    let Some(written) = part(&file.requests, root, "requests", problems)? else { return Ok(Requests::default()) };
    let encoded_slash = match part(&written.encoded_slash, node, "encoded_slash", problems)? {
        None => EncodedSlash::default(),
        Some(file::EncodedSlash::Reject) => EncodedSlash::Reject,
        Some(file::EncodedSlash::Keep) => EncodedSlash::Keep,
        Some(file::EncodedSlash::Decode) => EncodedSlash::Decode,
    };
    Ok(Requests { encoded_slash })
}
