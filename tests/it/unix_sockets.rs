//! Unix sockets for clients, the admin listener and upstreams.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::Gateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::support::gateway::TestGateway;
use crate::support::process::{Program, RuleFile, output, tidegate};
use crate::support::wire::{soon, until};

/// A folder for sockets. Dropping it removes the folder. Its path is short, because a path of a Unix socket has at most
/// 107 bytes.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tg-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn rules(listen: &str, admin: &str, target: &str) -> String {
    format!(
        "listen: {listen}
admin: {admin}
upstreams: {{ origin: {{ targets: ['{target}'] }} }}
routes:
  - name: all
    match: {{}}
    upstream: origin
    limits: [{{ name: l, mode: PER_CLIENT, client: ip, rate: 100, interval: 1h }}]
"
    )
}

/// Sends a request, and reads until the gateway closes the connection.
pub async fn ask(path: &str, request: &str) -> String {
    let mut client = soon(UnixStream::connect(path)).await.expect("a connection");
    client.write_all(request.as_bytes()).await.expect("sent");
    let mut response = String::new();
    soon(client.read_to_string(&mut response)).await.expect("a response");
    response
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Starts a gateway in this process.
fn start(rules: &str) -> Gateway {
    let config = Gateway::parse_config(rules).unwrap_or_else(|problems| panic!("{problems}"));
    Gateway::start(config, 2).expect("a gateway")
}

#[tokio::test]
async fn gateway_uses_unix_sockets_on_all_sides() {
    let folder = Folder::new("all");
    let (clients, admin, origin) = (folder.path("c"), folder.path("a"), folder.path("o"));
    let listener = UnixListener::bind(&origin).expect("a socket");
    let serving = tokio::spawn(async move {
        let (mut heads, mut buffer) = (Vec::new(), [0; 4096]);
        for _ in 0..2 {
            // Each worker opens its own connections.
            let (mut connection, _) = listener.accept().await.expect("a connection");
            let length = connection.read(&mut buffer).await.expect("a request");
            heads.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            connection.write_all(response).await.expect("sent");
        }
        heads
    });
    let listen = format!("{{ address: 'unix:{clients}', mode: '0600' }}");
    let gateway = start(&rules(&listen, &format!("unix:{admin}"), &format!("unix:{origin}")));
    assert_eq!(gateway.addresses()[0].to_string(), format!("unix:{clients}"));
    for path in [&clients, &admin] {
        assert_eq!(std::fs::metadata(path).expect("a file").permissions().mode() & 0o777, 0o600);
    }
    assert!(ask(&clients, &get("/")).await.ends_with("ok"));
    assert!(ask(&clients, "GET /old HTTP/1.0\r\n\r\n").await.ends_with("ok"));
    let heads = soon(serving).await.expect("two requests");
    let first = heads[0].to_lowercase();
    assert!(first.contains("\r\nhost: localhost\r\n") && first.contains("x-forwarded-for: 127.0.0.1\r\n"), "{first}");
    // A request without a Host gets one that is valid.
    assert!(heads[1].to_lowercase().contains("\r\nhost: localhost\r\n"), "{heads:?}");

    let config = ask(&admin, &get("/api/v1/config")).await;
    assert!(config.contains(&format!("unix:{origin}")) && config.contains("0600"), "{config}");
    assert!(ask(&admin, &get("/metrics")).await.contains("tidegate_decisions_total"));
    tokio::task::spawn_blocking(move || gateway.drain(Duration::from_millis(10)))
        .await
        .expect("joined")
        .expect("drained");
    assert!(!Path::new(&clients).exists(), "the socket of clients is removed");
}

#[tokio::test]
async fn absent_unix_socket_of_an_upstream_is_502() {
    let folder = Folder::new("absent");
    let gateway = TestGateway::start(
        &rules("x", "x", &format!("unix:{}", folder.path("no")))
            .lines()
            .skip(2)
            .fold(String::new(), |rules, line| rules + line + "\n"),
    );
    assert_eq!(gateway.get("/", "").await.status(), 502);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successor_takes_over_unix_sockets() {
    let folder = Folder::new("over");
    let (clients, admin, handover) = (folder.path("c"), folder.path("a"), folder.path("h"));
    let file = RuleFile::new("unix-over", &rules(&format!("unix:{clients}"), &format!("unix:{admin}"), "builtin:echo"));
    let run = || Program::start(&mut tidegate(&["run", "--workers", "2", "-c", file.path(), "--handover", &handover]));
    let old = run();
    until(|| std::os::unix::net::UnixStream::connect(&admin).is_ok()).await;
    assert!(ask(&clients, &get("/")).await.starts_with("HTTP/1.1 200"));
    // The old gateway has not accepted this connection, so the new one must.
    old.signal("STOP");
    let waiting = tokio::spawn({
        let clients = clients.clone();
        async move { ask(&clients, &get("/waiting")).await }
    });
    let new = run();
    old.signal("CONT");
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
    assert!(soon(waiting).await.expect("a response").starts_with("HTTP/1.1 200"));
    for path in [&clients, &admin] {
        assert!(ask(path, &get("/healthz")).await.starts_with("HTTP/1.1 200"), "{path}");
    }
    new.signal("TERM");
    assert!(new.wait_for_exit().0.success());
    let left: Vec<_> = std::fs::read_dir(&folder.0).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn mode(path: &str) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successor_applies_its_modes_and_removes_unused_files() {
    let folder = Folder::new("modes");
    let [clients, more, admin, handover] = ["c", "m", "a", "h"].map(|name| folder.path(name));
    let listen = |entries: &str| rules(entries, &format!("unix:{admin}"), "builtin:echo");
    let both = format!("[{{ address: 'unix:{clients}', mode: '0666' }}, 'unix:{more}']");
    let file = RuleFile::new("unix-modes", &listen(&both));
    // The umask does not restrict the mode of the rule file.
    let mut shell = std::process::Command::new("sh");
    let with_umask = "umask 077 && exec \"$0\" run --workers 2 -c \"$1\" --handover \"$2\"";
    shell.args(["-c", with_umask, env!("CARGO_BIN_EXE_tidegate"), file.path(), &handover]);
    let old = Program::start(&mut shell);
    until(|| std::os::unix::net::UnixStream::connect(&admin).is_ok()).await;
    assert_eq!([&clients, &more, &admin, &handover].map(|path| mode(path)), [0o666, 0o660, 0o600, 0o600]);

    let file = RuleFile::new("unix-mode", &listen(&format!("{{ address: 'unix:{clients}', mode: '0640' }}")));
    let new = Program::start(&mut tidegate(&["run", "--workers", "2", "-c", file.path(), "--handover", &handover]));
    let (status, log) = old.wait_for_exit();
    assert!(status.success() && log.contains("successor serves"), "{log}");
    until(|| !Path::new(&more).exists()).await;
    until(|| mode(&clients) == 0o640).await;
    assert!(ask(&clients, &get("/")).await.starts_with("HTTP/1.1 200"));
    new.signal("TERM");
    assert!(new.wait_for_exit().0.success());
    let left: Vec<_> = std::fs::read_dir(&folder.0).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn only_sockets_of_dead_gateways_are_replaced() {
    let folder = Folder::new("taken");
    let clients = folder.path("c");
    let file = RuleFile::new("unix-taken", &rules(&format!("unix:{clients}"), "'off'", "builtin:echo"));
    let first = Program::start(&mut tidegate(&["run", "-c", file.path()]));
    until(|| std::os::unix::net::UnixStream::connect(&clients).is_ok()).await;
    let second = output(&["run", "-c", file.path()]);
    assert_eq!(second.status.code(), Some(2));
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        error.contains(&format!("cannot listen on unix:{clients}: another process listens on this socket")),
        "{error}"
    );
    assert!(ask(&clients, &get("/")).await.starts_with("HTTP/1.1 200"), "the first gateway must still serve");

    first.signal("KILL");
    first.wait_for_exit();
    assert!(Path::new(&clients).exists());
    let _third = Program::start(&mut tidegate(&["run", "-c", file.path()]));
    until(|| std::os::unix::net::UnixStream::connect(&clients).is_ok()).await;
    assert!(ask(&clients, &get("/")).await.starts_with("HTTP/1.1 200"));
}

#[test]
fn unusable_socket_path_is_an_error() {
    let folder = Folder::new("bad");
    let (file, absent) = (folder.path("file"), folder.path("no/such/folder"));
    std::fs::write(&file, "precious").expect("written");
    for (path, expected) in [(&file, "the path exists and is not a socket"), (&absent, "No such file or directory")] {
        let rules = RuleFile::new("unix-bad", &rules(&format!("unix:{path}"), "'off'", "builtin:echo"));
        let run = output(&["run", "-c", rules.path()]);
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("cannot listen on unix:{path}: ")) && error.contains(expected), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "precious");
}
