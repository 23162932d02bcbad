//! The source of the descriptors: files below `RUNTIME_ROOT`, or an xDS server.

use std::fs;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::yaml::{FlowMap, flow_list, quoted};

/// The default of `RUNTIME_ROOT`.
const ROOT: &str = "/srv/runtime_data/current";

/// The default of `CONFIG_GRPC_XDS_SERVER_URL`.
const XDS_SERVER: &str = "localhost:18000";

/// The maximum depth of folders below the folder of the files.
const MAX_DEPTH: u32 = 8;

/// Returns `descriptors` of the service.
pub(super) fn descriptors(env: &mut Environment) -> String {
    match env.text_or("CONFIG_TYPE", "FILE") {
        "FILE" => flow_list(patterns(env).iter().map(|pattern| quoted(pattern))),
        "GRPC_XDS_SOTW" => xds(env),
        _ => {
            env.fault("CONFIG_TYPE", "is not `FILE` or `GRPC_XDS_SOTW`");
            String::new()
        }
    }
}

/// Returns the map of a control plane.
fn xds(env: &mut Environment) -> String {
    let is_tls = env.flag("CONFIG_GRPC_XDS_SERVER_USE_TLS", false);
    let (scheme, url) = (if is_tls { "https" } else { "http" }, env.text_or("CONFIG_GRPC_XDS_SERVER_URL", XDS_SERVER));
    let mut plane = FlowMap::default();
    plane.add("xds", quoted(&format!("{scheme}://{url}")));
    plane.add("node", quoted(env.text_or("CONFIG_GRPC_XDS_NODE_ID", "default")));
    if env.flag("FORCE_START_WITHOUT_INITIAL_CONFIG", false) {
        plane.add("required", false);
    }
    if is_tls {
        let mut tls = FlowMap::default();
        for (key, name) in [
            ("ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
            ("server_name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
            ("cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
            ("key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
        ] {
            tls.add_text(key, env.text(name));
        }
        plane.add("tls", tls.flow());
    }
    plane.flow()
}

/// Returns the paths of the files: all in the folder `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY` and in the folders
/// below. With `RUNTIME_WATCH_ROOT`, also files next to this folder whose names start with its name and a dot.
fn patterns(env: &mut Environment) -> Vec<String> {
    let watches_root = env.flag("RUNTIME_WATCH_ROOT", true);
    let base = Path::new(env.text_or("RUNTIME_ROOT", ROOT)).join(env.text_or("RUNTIME_SUBDIRECTORY", ""));
    let folder = base.join(env.text_or("RUNTIME_APPDIRECTORY", "config"));
    let mut patterns: Vec<_> = folders(&folder).iter().map(|folder| folder.join("*").display().to_string()).collect();
    if watches_root {
        patterns.push(format!("?{}.*", folder.display()));
    }
    patterns
}

/// Returns a folder and the visible folders below. Symbolic links are not followed, as in envoyproxy/ratelimit.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut level = folders.clone();
    for _ in 0..MAX_DEPTH {
        level = level.iter().flat_map(|folder| visible_folders(folder)).collect();
        level.sort();
        folders.extend_from_slice(&level);
    }
    folders
}

fn visible_folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let is_visible = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let folders = entries.filter(|entry| is_visible(entry) && entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}
