//! The Redis that is broken: it is killed and started again at the same place, with what it had written down or without.

use std::fs;
use std::path::{Path, PathBuf};

use deadpool_redis::redis::{Connection, RedisResult, cmd};
use tidegate::clock::{Clock, SystemClock};

use super::super::redis::{RedisServer, free_port};

/// Whom gateways log in as.
pub const USER: &str = "gateway";

/// A Redis; and where it is, while it is not there.
pub struct Server {
    running: Option<RedisServer>,
    pub port: u16,
    folder: PathBuf,
    /// The file that gateways read the password from.
    pub password_file: PathBuf,
    passwords: u32,
}

impl Server {
    /// Starts one that keeps its data in this folder; nothing where there is none to start.
    pub fn start(folder: &Path) -> Option<Self> {
        let (port, password_file) = (free_port(), folder.join("password"));
        let folder = folder.join("redis");
        let mut server = Self { running: None, port, folder, password_file, passwords: 0 };
        fs::create_dir_all(&server.folder).expect("a folder");
        fs::write(&server.password_file, server.password()).expect("written");
        server.restart();
        server.running.is_some().then_some(server)
    }

    /// Kills it, with calls under way; returns when that was.
    pub fn kill(&mut self) -> u64 {
        self.running = None;
        SystemClock::new().now().as_millis()
    }

    /// Starts it with what it had written down: all that it has ever answered, since it writes before it answers.
    pub fn restart(&mut self) {
        let (acl, data) = (self.folder.join("users.acl"), self.folder.display().to_string());
        let users = format!("user default on nopass ~* &* +@all\nuser {USER} on >{} ~* &* +@all\n", self.password());
        fs::write(&acl, users).expect("written");
        let acl = acl.display().to_string();
        let keeps = ["--appendonly", "yes", "--appendfsync", "no", "--dir", &data, "--aclfile", &acl];
        self.running = RedisServer::start_with(Some(self.port), &keeps);
    }

    /// Starts it with nothing.
    pub fn restart_empty(&mut self) {
        fs::remove_dir_all(&self.folder).expect("removed");
        fs::create_dir_all(&self.folder).expect("a folder");
        self.restart();
    }

    /// Changes the gateways' password; they are not told.
    pub fn change_password(&mut self) {
        self.passwords += 1;
        self.tell(&["ACL", "SETUSER", USER, "resetpass", &format!(">{}", self.password())]);
    }

    /// Tells the gateways the present password.
    pub fn tell_password(&self) {
        let next = self.password_file.with_extension("next");
        fs::write(&next, self.password()).expect("written");
        fs::rename(&next, &self.password_file).expect("moved");
    }

    pub fn signal(&self, name: &str) {
        self.running.as_ref().expect("a Redis").signal(name);
    }

    pub fn connection(&self) -> Connection {
        self.running.as_ref().expect("a Redis").connection()
    }

    /// Tells it to do something, and that it does.
    pub fn tell(&self, words: &[&str]) {
        self.ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    /// Tells it to do something that it may not.
    pub fn ask(&self, words: &[&str]) -> RedisResult<()> {
        let (name, arguments) = words.split_first().expect("a command");
        cmd(name).arg(arguments).exec(&mut self.connection())
    }

    fn password(&self) -> String {
        format!("word-{}", self.passwords)
    }
}
