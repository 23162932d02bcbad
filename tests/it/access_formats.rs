//! The formats of the access log, sampled lines, and reloads between formats and files.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::gateway::get;
use crate::support::process::{Program, address, tidegate};
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::Origin;
use crate::support::wire::{soon, until};

/// A gateway with its rule file and its logs in a folder. Dropping it removes the folder.
struct Logging {
    program: Program,
    address: SocketAddr,
    folder: PathBuf,
}

fn rules(access_log: &str, target: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: off
access_log: {access_log}
clients: {{ trusted_proxies: [127.0.0.2] }}
upstreams: {{ api: {{ targets: [{target}], balance: round_robin }} }}
routes:
  - {{ name: limited, match: {{ path: /limited }}, upstream: api, limits: [{{ name: l, mode: OVERALL, rate: 1, interval: 1h }}] }}
  - {{ name: waits, match: {{ path: /waits }}, upstream: api, limits: [{{ name: w, mode: OVERALL, rate: 1, interval: 3s, max_wait: 5s }}] }}
  - {{ name: all, match: {{ path: '/o/**' }}, upstream: api }}
"
    )
}

impl Logging {
    /// Starts a gateway with one worker. `{}` in `access_log` is the folder.
    fn start(name: &str, access_log: &str, target: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let path = folder.join("rules.yaml");
        fs::write(&path, rules(access_log, target)).expect("written");
        let arguments = ["run", "--workers", "1", "--no-watch", path.to_str().expect("UTF-8")];
        let mut program = Program::start(&mut tidegate(&arguments));
        let address = address(&mut program.stderr, "listening on http://");
        Self { program, address, folder }
    }

    fn reload(&self, access_log: &str) {
        fs::write(self.folder.join("rules.yaml"), rules(access_log, "builtin:echo")).expect("written");
        self.program.signal("HUP");
    }

    async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Waits until the log has this number of lines, and returns them.
    #[track_caller]
    fn lines(&self, name: &'static str, count: usize) -> impl Future<Output = Vec<String>> {
        let enough = until(move || self.log(name).lines().count() >= count);
        async move {
            enough.await;
            self.log(name).lines().map(str::to_owned).collect()
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the fields of a line in the combined format: address, user, time, request, status, bytes, referrer and agent.
fn parse_combined(line: &str) -> [String; 8] {
    let (address, rest) = line.split_once(" - ").expect("an address");
    let (user, rest) = rest.split_once(" [").expect("a user");
    let (time, rest) = rest.split_once("] \"").expect("a time");
    let (request, rest) = rest.split_once("\" ").expect("a request");
    let (numbers, rest) = rest.split_once(" \"").expect("numbers");
    let (status, bytes) = numbers.split_once(' ').expect("two numbers");
    let (referrer, agent) = rest.split_once("\" \"").expect("a referrer");
    let agent = agent.strip_suffix('"').expect("a user agent");
    let fields = [address, user, time, request, status, bytes, referrer, agent];
    assert!(fields.iter().all(|field| !field.contains('"')), "{line}");
    fields.map(str::to_owned)
}

#[tokio::test]
async fn combined_lines_are_escaped_as_by_nginx() {
    let logging = Logging::start("combined", "{ path: ./a.log, format: combined }", "builtin:echo");
    let mut client = Raw::connect_from("127.0.0.2", logging.address).await;
    let agent = b"x\" 200 5 \"-\" \"\\\xe4\t";
    let request = [
        b"GET /o/a?secret=1 HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.9\r\nReferer: http://r?s=1\r\nUser-Agent: ",
        &agent[..],
        b"\r\n\r\n",
    ];
    assert_eq!(client.ask(request.concat()).await.status(), 200);
    assert_eq!(get(&mut client, "/none", "").await.status(), 404);
    let mut broken = logging.client().await;
    broken.send("no request\r\n\r\n").await;
    _ = broken.rest().await;
    let lines = logging.lines("a.log", 3).await;
    let [address, user, time, request, status, _, referrer, agent] = parse_combined(&lines[0]);
    assert_eq!([&address, &user, &request, &status], ["192.0.2.9", "-", "GET /o/a HTTP/1.1", "200"]);
    assert_eq!((referrer.as_str(), agent.as_str()), ("-", "x\\x22 200 5 \\x22-\\x22 \\x22\\x5C\\xEF\\xBF\\xBD"));
    let is_time = |(at, c): (usize, char)| match b"00/Aaa/0000:00:00:00 +0000"[at] {
        b'0' => c.is_ascii_digit(),
        b'A' => c.is_ascii_uppercase(),
        b'a' => c.is_ascii_lowercase(),
        other => c == char::from(other),
    };
    assert!(time.len() == 26 && time.chars().enumerate().all(is_time), "{time}");
    assert_eq!(parse_combined(&lines[1])[3..5], ["GET /none HTTP/1.1", "404"]);
    assert_eq!(parse_combined(&lines[2])[3..], ["-", "400", "0", "-", "-"]);
}

#[tokio::test]
async fn rejected_requests_are_logged_despite_sampling() {
    let logging = Logging::start("sample", "{ path: ./a.log, format: json, sample: 0.1 }", "builtin:echo");
    let mut client = logging.client().await;
    for number in 0..200 {
        assert_eq!(get(&mut client, &format!("/o/{number}"), "").await.status(), 200);
        assert_eq!(get(&mut client, "/limited", "").await.status(), if number == 0 { 200 } else { 429 });
    }
    assert_eq!(get(&mut client, "/none", "").await.status(), 404);
    until(|| logging.log("a.log").contains("/none")).await;
    let all = logging.log("a.log");
    let lines: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let count = |status: u16| lines.iter().filter(|line| line["status"] == status).count();
    assert_eq!((count(429), count(404)), (199, 1));
    assert!((18..=23).contains(&count(200)), "{} of 201 lines", count(200));
}

#[tokio::test]
async fn reload_switches_formats_and_files_without_loss() {
    let logging = Logging::start("formats", "./text.log", "builtin:echo");
    let mut client = logging.client().await;
    get(&mut client, "/o/text", "").await;
    logging.lines("text.log", 1).await;
    let switches = [
        ("{ path: ./new.log, format: json }", "new.log"),
        ("{ path: ./new.log, format: combined }", "new.log"),
        ("{ path: ./last.log, format: text, sample: 0 }", "last.log"),
    ];
    for (count, (access_log, name)) in switches.into_iter().enumerate() {
        logging.reload(access_log);
        let is_new = |line: &str| match count {
            0 => line.starts_with('{'),
            1 => line.starts_with("127.0.0.1 - - ["),
            _ => line.contains(" INFO GET /2/"),
        };
        // Requests continue while the log changes.
        soon(async {
            let mut number = 0;
            while !logging.log(name).lines().any(is_new) {
                assert_eq!(get(&mut client, &format!("/{count}/{number}"), "").await.status(), 404);
                number += 1;
            }
        })
        .await;
    }
    drop(client);
    let all = ["text.log", "new.log", "last.log"].map(|name| logging.log(name));
    assert!(all[0].lines().all(|line| line.contains(" INFO GET /")), "{}", all[0]);
    let is_whole = |line: &str| match line.starts_with('{') {
        true => serde_json::from_str::<Value>(line).is_ok(),
        false => parse_combined(line)[4] == "404",
    };
    assert!(all[1].lines().all(is_whole), "{}", all[1]);
    assert!(all[2].lines().all(|line| line.contains(" INFO GET /")), "{}", all[2]);
    let logged = |path: &str| all.iter().map(|log| log.matches(path).count()).sum::<usize>();
    assert!(logged("/0/0") > 0 && logged("/1/0") > 0 && logged("/2/0") > 0, "{all:?}");
}

#[tokio::test]
async fn lines_have_attempts_wait_and_protocol() {
    let dead = Origin::closed_port();
    let live = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let targets = format!("'http://{dead}', 'http://{}'", live.address);
    let logging = Logging::start("attempts", "{ path: ./a.log, format: json }", &targets);
    let mut client = logging.client().await;
    for path in ["/o/1", "/o/2", "/waits", "/waits", "/none"] {
        get(&mut client, path, "").await;
    }
    let lines = logging.lines("a.log", 5).await;
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut attempts: Vec<_> = lines[..2].iter().map(|line| line["attempts"].as_u64()).collect();
    attempts.sort();
    assert_eq!(attempts, [Some(1), Some(2)]);
    assert!(lines[0]["wait_ms"].is_null() && lines[4]["attempts"].is_null(), "{lines:?}");
    let wait = |line: &Value| line["wait_ms"].as_f64().expect("a wait");
    assert!(wait(&lines[3]) > wait(&lines[2]), "{lines:?}");
    assert!(lines.iter().all(|line| line["protocol"] == "HTTP/1.1"), "{lines:?}");
}
