//! Shifts Redis's clock: a library that is preloaded into redis-server adds an offset to the time.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clock with an offset of whole hours to this machine's clock.
pub struct ShiftedClock {
    folder: PathBuf,
    hours: i64,
}

impl ShiftedClock {
    /// Builds the library, with an offset of zero. Returns `None` if there is no C compiler.
    pub fn start(folder: &Path) -> Option<Self> {
        let clock = Self { folder: folder.to_owned(), hours: 0 };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos/stores/clock.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(clock.library()).arg(source).status();
        clock.write();
        match built.is_ok_and(|status| status.success()) {
            true => Some(clock),
            false => {
                println!("NOT TESTED: a clock that jumps (no C compiler)");
                None
            }
        }
    }

    /// Returns the environment variables for redis-server.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library()), ("REDIS_CLOCK", self.file())]
    }

    pub fn shift(&mut self, hours: i64) {
        self.hours += hours;
        self.write();
    }

    fn write(&self) {
        let bytes = (self.hours * 3_600_000_000).to_ne_bytes();
        // Does not truncate the file: Redis has it mapped and must not find it empty.
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
