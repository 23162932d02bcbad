//! The Redis that is broken: it is killed and started again at the same place, with what it had written down or without.

use std::fs;
use std::path::{Path, PathBuf};

use deadpool_redis::redis::{Connection, RedisResult, cmd};
use tidegate::clock::{Clock, SystemClock};

use super::super::redis::{RedisServer, free_port};
use super::super::tls::Authority;
use super::clock::MovedClock;

/// Whom gateways log in as.
pub const USER: &str = "gateway";

const CERTIFICATE: &str = "redis";
const HOSTS: [&str; 1] = ["127.0.0.1"];

/// A Redis; and where it is, while it is not there.
pub struct Server {
    running: Option<RedisServer>,
    /// Where gateways reach it.
    pub port: u16,
    /// Where we do.
    own_port: u16,
    /// Who signs its certificate, if it is reached by TLS.
    authority: Option<Authority>,
    /// What it is told besides.
    more: Vec<String>,
    /// If it can be moved.
    clock: Option<MovedClock>,
    folder: PathBuf,
    /// The file that gateways read the password from.
    password_file: PathBuf,
    passwords: u32,
}

impl Server {
    /// Starts one that keeps its data in this folder; nothing where there is none to start.
    pub fn start(folder: &Path) -> Option<Self> {
        let mut server = Self::in_folder(folder);
        server.clock = MovedClock::start(folder);
        server.run()
    }

    /// The same, but gateways can reach it by TLS alone, and have to show a certificate; nothing where it has no TLS.
    pub fn start_with_tls(folder: &Path) -> Option<Self> {
        let (mut server, authority) = (Self::in_folder(folder), Authority::new());
        authority.sign("gateway", &[]);
        authority.sign(CERTIFICATE, &HOSTS);
        server.port = free_port();
        server.more = authority.server_settings(CERTIFICATE, "yes")?;
        server.more.extend(["--tls-port".to_owned(), server.port.to_string()]);
        server.authority = Some(authority);
        server.run()
    }

    fn in_folder(folder: &Path) -> Self {
        let (port, password_file, folder) = (free_port(), folder.join("password"), folder.join("redis"));
        let (running, authority, clock, more) = (None, None, None, Vec::new());
        Self { running, port, own_port: port, authority, more, clock, folder, password_file, passwords: 0 }
    }

    fn run(mut self) -> Option<Self> {
        fs::create_dir_all(&self.folder).expect("a folder");
        fs::write(&self.password_file, self.password()).expect("written");
        self.restart();
        self.running.is_some().then_some(self)
    }

    /// What the rule file of a gateway says of it that reaches it at this port.
    pub fn rule(&self, port: u16) -> String {
        let password = self.password_file.display();
        let (scheme, tls) = self.authority.as_ref().map_or(("redis", String::new()), |authority| {
            let [ca, cert, key] = ["ca.pem", "gateway.pem", "gateway.key"].map(|file| authority.path(file));
            ("rediss", format!(", tls: {{ ca: '{ca}', cert: '{cert}', key: '{key}' }}"))
        });
        format!("url: '{scheme}://{USER}@127.0.0.1:{port}', password_file: '{password}'{tls}")
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
        let all: Vec<&str> = keeps.into_iter().chain(self.more.iter().map(String::as_str)).collect();
        let environment = self.clock.as_ref().map(MovedClock::environment);
        self.running =
            RedisServer::start_in_environment(self.own_port, &all, environment.as_ref().map_or(&[], |all| &all[..]));
    }

    /// From now on it shows a certificate that was over long ago.
    pub fn show_expired(&self) {
        self.show(|authority| authority.sign_expired(CERTIFICATE, &HOSTS));
    }

    pub fn show_valid(&self) {
        self.show(|authority| authority.sign(CERTIFICATE, &HOSTS));
    }

    fn show(&self, sign: impl FnOnce(&Authority)) {
        let authority = self.authority.as_ref().expect("one by TLS");
        sign(authority);
        // It reads both files again.
        self.tell(&["CONFIG", "SET", "tls-cert-file", &authority.path(&format!("{CERTIFICATE}.pem"))]);
    }

    /// Moves its clock by so many hours.
    pub fn move_clock(&mut self, hours: i64) {
        if let Some(clock) = &mut self.clock {
            clock.move_by(hours);
        }
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
