//! Reads Docker Compose files without Docker, so that tests can start their services as processes.

use std::path::{Path, PathBuf};

use serde_yaml::Value;

/// A Docker Compose file.
pub struct Compose {
    services: Value,
    folder: PathBuf,
}

impl Compose {
    /// Reads the file at this path of the repository.
    pub fn read(path: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let mut file: Value = serde_yaml::from_str(&read(&path)).expect("yaml");
        file.apply_merge().expect("aliases");
        Self { services: file["services"].clone(), folder: path.parent().expect("a folder").to_owned() }
    }

    /// Returns the names of all services.
    pub fn services(&self) -> Vec<&str> {
        let services = self.services.as_mapping().expect("services").keys();
        services.map(|name| name.as_str().expect("a name")).collect()
    }

    /// Returns the definition of a service.
    pub fn service(&self, name: &str) -> &Value {
        &self.services[name]
    }

    /// Returns the arguments of the service's command, which must be `program`.
    pub fn arguments(&self, service: &str, program: &str) -> Vec<&str> {
        let words = self.service(service)["command"].as_sequence().expect("a command").iter();
        let mut words = words.map(|word| word.as_str().expect("a word"));
        assert_eq!(words.next(), Some(program), "{service}");
        words.collect()
    }

    /// Reads the file that a service mounts as its first volume.
    pub fn mounted_file(&self, service: &str) -> String {
        let volume = self.service(service)["volumes"][0].as_str().expect("a volume");
        let (file, _) = volume.split_once(':').expect("a file and its path in the container");
        read(&self.folder.join(file))
    }
}

/// Replaces the only occurrence of `old`. Panics if `old` occurs more or less often: then the file has changed.
pub fn replace_once(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "the file must contain `{old}` once:\n{text}");
    text.replace(old, new)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
