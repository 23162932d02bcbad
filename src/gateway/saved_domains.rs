//! The file of `--state` with the ending `.domains` stores what a control plane has sent last. A gateway that starts while the
//! control plane cannot be reached uses these domains.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::checked_file;
use tidegate_config::ControlPlane;

/// The version of the file format.
const VERSION: u32 = 1;

/// The path of the file.
#[derive(Clone, Debug)]
pub(super) struct SavedDomains(PathBuf);

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// The control plane that has sent the resources, and the node that they are for.
    control_plane: String,
    node: String,
    /// The encoded resources, in Base64.
    resources: Vec<String>,
}

impl SavedDomains {
    /// Returns the file that belongs to this state file.
    pub(super) fn of_state(state: &Path) -> Self {
        let mut path = state.to_owned().into_os_string();
        path.push(".domains");
        Self(path.into())
    }

    /// Returns the encoded resources that this control plane has sent last. Returns `None` if the file has none. Logs a warning
    /// if the file is damaged or unreadable.
    pub(super) fn read(&self, plane: &ControlPlane) -> Option<Vec<Bytes>> {
        self.try_read(plane).unwrap_or_else(|error| {
            tracing::warn!(path = %self.0.display(), %error, "cannot read the saved domains, starting without them");
            None
        })
    }

    fn try_read(&self, plane: &ControlPlane) -> io::Result<Option<Vec<Bytes>>> {
        let Some(json) = checked_file::read(&self.0)? else { return Ok(None) };
        let Content { version, control_plane, node, resources } = serde_json::from_str(&json)?;
        let damaged = |message: String| io::Error::new(ErrorKind::InvalidData, message);
        if version != VERSION {
            return Err(damaged(format!("the file has version {version}, not {VERSION}")));
        }
        if control_plane != plane.target.to_string() || node != plane.node {
            return Ok(None);
        }
        let decode = |text: &String| BASE64_STANDARD.decode(text).map(Bytes::from);
        let resources: Result<Vec<_>, _> = resources.iter().map(decode).collect();
        resources.map(Some).map_err(|error| damaged(error.to_string()))
    }

    /// Replaces the file. Logs a failure.
    pub(super) fn write(&self, plane: &ControlPlane, resources: &[Bytes]) {
        let content = Content {
            version: VERSION,
            control_plane: plane.target.to_string(),
            node: plane.node.clone(),
            resources: resources.iter().map(|resource| BASE64_STANDARD.encode(resource)).collect(),
        };
        let written = serde_json::to_string(&content).map_err(io::Error::from);
        if let Err(error) = written.and_then(|json| checked_file::replace(&self.0, &json)) {
            tracing::warn!(path = %self.0.display(), %error, "cannot save the domains for the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gateway;
    use crate::testing::logged_by;

    fn plane(url: &str, node: &str) -> ControlPlane {
        let rules = format!("service: {{ grpc: 127.0.0.1:0, descriptors: {{ xds: '{url}', node: {node} }} }}");
        Gateway::parse_config(&rules).unwrap().service.unwrap().control_plane.unwrap()
    }

    #[test]
    fn saved_domains_belong_to_their_control_plane() {
        let state = std::env::temp_dir().join(format!("tidegate-domains-{}", std::process::id()));
        let (saved, own) = (SavedDomains::of_state(&state), plane("http://plane:1", "own"));
        assert_eq!(saved.read(&own), None);
        let resources = [Bytes::from_static(b"\0\xff"), Bytes::new()];
        saved.write(&own, &resources);
        assert_eq!(saved.read(&own).as_deref(), Some(&resources[..]));
        for other in [plane("http://plane:2", "own"), plane("https://plane:1", "own"), plane("http://plane:1", "other")]
        {
            assert_eq!(saved.read(&other), None);
        }
        std::fs::write(&saved.0, "{}").expect("written");
        let log = logged_by(|| assert_eq!(saved.read(&own), None));
        assert!(log.contains("cannot read the saved domains"), "{log}");
        std::fs::remove_file(&saved.0).expect("removed");
    }
}
