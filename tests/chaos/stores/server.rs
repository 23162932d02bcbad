//! A Redis that can be killed and restarted at the same port, with its data or without.

use std::fs;
use std::path::{Path, PathBuf};

use deadpool_redis::redis::{Connection, RedisResult, cmd};
use tidegate::Clock;
use tidegate_limit::clock::SystemClock;

use super::super::redis::{RedisServer, free_port};
use super::super::tls::Authority;
use super::clock::ShiftedClock;

/// The Redis user of the gateways.
pub const USER: &str = "gateway";

const CERTIFICATE: &str = "redis";
const HOSTS: [&str; 1] = ["127.0.0.1"];

/// A Redis server that may be running or not.
pub struct Server {
    running: Option<RedisServer>,
    /// The port for gateways.
    pub port: u16,
    /// The port for the test, without TLS.
    own_port: u16,
    /// The authority of its certificate, if it uses TLS.
    authority: Option<Authority>,
    /// Further arguments of redis-server.
    more: Vec<String>,
    clock: Option<ShiftedClock>,
    folder: PathBuf,
    /// The file that gateways read the password from.
    password_file: PathBuf,
    passwords: u32,
}

impl Server {
    /// Starts a server with its data in `folder`. Returns `None` if Redis is not installed.
    pub fn start(folder: &Path) -> Option<Self> {
        let mut server = Self::in_folder(folder);
        server.clock = ShiftedClock::start(folder);
        server.run()
    }

    /// Like [`Self::start`], but gateways need TLS and a client certificate. Returns `None` if this Redis has no TLS.
    pub fn start_with_tls(folder: &Path) -> Option<Self> {
        let (mut server, authority) = (Self::in_folder(folder), Authority::new());
        authority.sign("gateway", &[]);
        authority.sign(CERTIFICATE, &HOSTS);
        server.port = free_port();
        server.more = authority.redis_arguments(CERTIFICATE, "yes")?;
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

    /// Returns the `store` entry of a rule file for a gateway that connects to `port`.
    pub fn rule(&self, port: u16) -> String {
        let password = self.password_file.display();
        let (scheme, tls) = self.authority.as_ref().map_or(("redis", String::new()), |authority| {
            let [ca, cert, key] = ["ca.pem", "gateway.pem", "gateway.key"].map(|file| authority.path(file));
            ("rediss", format!(", tls: {{ ca: '{ca}', cert: '{cert}', key: '{key}' }}"))
        });
        format!("url: '{scheme}://{USER}@127.0.0.1:{port}', password_file: '{password}'{tls}")
    }

    /// Kills the server, with calls in flight. Returns the time.
    pub fn kill(&mut self) -> u64 {
        self.running = None;
        SystemClock::new().now().as_millis()
    }

    /// Starts the server with its data. Nothing that it replied is lost: it writes the append-only file before it
    /// replies.
    pub fn restart(&mut self) {
        let (acl, data) = (self.folder.join("users.acl"), self.folder.display().to_string());
        let users = format!("user default on nopass ~* &* +@all\nuser {USER} on >{} ~* &* +@all\n", self.password());
        fs::write(&acl, users).expect("written");
        let acl = acl.display().to_string();
        let settings = ["--appendonly", "yes", "--appendfsync", "no", "--dir", &data, "--aclfile", &acl];
        let all: Vec<&str> = settings.into_iter().chain(self.more.iter().map(String::as_str)).collect();
        let environment = self.clock.as_ref().map(ShiftedClock::environment);
        self.running =
            RedisServer::start_in_environment(self.own_port, &all, environment.as_ref().map_or(&[], |all| &all[..]));
    }

    /// Replaces the server's certificate by an expired one.
    pub fn present_expired(&self) {
        self.replace_certificate(|authority| authority.sign_expired(CERTIFICATE, &HOSTS));
    }

    pub fn present_valid(&self) {
        self.replace_certificate(|authority| authority.sign(CERTIFICATE, &HOSTS));
    }

    fn replace_certificate(&self, sign: impl FnOnce(&Authority)) {
        let authority = self.authority.as_ref().expect("a server with TLS");
        sign(authority);
        // Makes the server read the certificate and the key again.
        self.execute(&["CONFIG", "SET", "tls-cert-file", &authority.path(&format!("{CERTIFICATE}.pem"))]);
    }

    pub fn shift_clock(&mut self, hours: i64) {
        if let Some(clock) = &mut self.clock {
            clock.shift(hours);
        }
    }

    /// Starts the server without data.
    pub fn restart_empty(&mut self) {
        fs::remove_dir_all(&self.folder).expect("removed");
        fs::create_dir_all(&self.folder).expect("a folder");
        self.restart();
    }

    /// Changes the password of the gateways' user, but not the gateways' password file.
    pub fn change_password(&mut self) {
        self.passwords += 1;
        self.execute(&["ACL", "SETUSER", USER, "resetpass", &format!(">{}", self.password())]);
    }

    /// Writes the present password to the gateways' password file.
    pub fn write_password_file(&self) {
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

    /// Executes a command that must succeed.
    #[track_caller]
    pub fn execute(&self, words: &[&str]) {
        self.try_execute(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    /// Executes a command that may fail.
    pub fn try_execute(&self, words: &[&str]) -> RedisResult<()> {
        let (name, arguments) = words.split_first().expect("a command");
        cmd(name).arg(arguments).exec(&mut self.connection())
    }

    fn password(&self) -> String {
        format!("word-{}", self.passwords)
    }
}
