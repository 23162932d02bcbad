//! Files of Docker Compose, read without Docker: what they start can be started as they say, in real processes.

use std::path::{Path, PathBuf};

use serde_yaml::Value;

/// A file of Docker Compose.
pub struct Compose {
    services: Value,
    folder: PathBuf,
}

impl Compose {
    /// The file at this path of the repository.
    pub fn read(path: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let mut file: Value = serde_yaml::from_str(&read(&path)).expect("yaml");
        file.apply_merge().expect("aliases");
        Self { services: file["services"].clone(), folder: path.parent().expect("a folder").to_owned() }
    }

    /// The names of all services.
    pub fn services(&self) -> Vec<&str> {
        let services = self.services.as_mapping().expect("services").keys();
        services.map(|name| name.as_str().expect("a name")).collect()
    }

    /// What it says of a service.
    pub fn service(&self, name: &str) -> &Value {
        &self.services[name]
    }

    /// What a service that runs this program gives it as arguments.
    pub fn arguments(&self, service: &str, program: &str) -> Vec<&str> {
        let words = self.service(service)["command"].as_sequence().expect("a command").iter();
        let mut words = words.map(|word| word.as_str().expect("a word"));
        assert_eq!(words.next(), Some(program), "{service}");
        words.collect()
    }

    /// The file that a service has mounted.
    pub fn mounted(&self, service: &str) -> String {
        let volume = self.service(service)["volumes"][0].as_str().expect("a volume");
        let (file, _) = volume.split_once(':').expect("a file, and where it is seen");
        read(&self.folder.join(file))
    }
}

/// A text with something else in one place; if there is none, or more of them, the file is not what it was.
pub fn with(text: &str, there: &str, here: &str) -> String {
    assert_eq!(text.matches(there).count(), 1, "`{there}` in\n{text}");
    text.replace(there, here)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
