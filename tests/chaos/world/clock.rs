//! Redis's clock, which can be moved: a library that redis-server is started with adds to the time that it reads.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clock that is ahead of this machine's by some hours, or behind it.
pub struct MovedClock {
    folder: PathBuf,
    hours: i64,
}

impl MovedClock {
    /// One that goes right as yet; nothing where there is no C compiler.
    pub fn start(folder: &Path) -> Option<Self> {
        let clock = Self { folder: folder.to_owned(), hours: 0 };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos/world/clock.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(clock.library()).arg(source).status();
        clock.write();
        match built.is_ok_and(|status| status.success()) {
            true => Some(clock),
            false => {
                println!("NOT TESTED: a clock that moves, as there is no C compiler");
                None
            }
        }
    }

    /// What a server's environment has then.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library()), ("REDIS_CLOCK", self.file())]
    }

    pub fn move_by(&mut self, hours: i64) {
        self.hours += hours;
        self.write();
    }

    fn write(&self) {
        let bytes = (self.hours * 3_600_000_000).to_ne_bytes();
        // Redis reads it meanwhile, and never finds it empty.
        let file = File::options().write(true).create(true).truncate(false).open(self.file());
        file.and_then(|mut file| file.write_all(&bytes)).expect("written");
    }

    fn file(&self) -> PathBuf {
        self.folder.join("clock")
    }

    fn library(&self) -> PathBuf {
        self.folder.join("clock.so")
    }
}
