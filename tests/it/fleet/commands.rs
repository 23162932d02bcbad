//! `reload --all` and `drain --all`: each gateway checks the operator's token, and executes a command once.

use deadpool_redis::redis::{Connection, cmd};
use serde_json::{Value, json};

use super::each;
use super::member::Member;
use crate::admin_api::{Admin, TOKEN};
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

const COMMANDS: &str = "{tidegate:@operators}:commands";

/// Starts three gateways with these tokens. Each lists the others.
async fn three(redis: &RedisServer, name: &str, tokens: [&str; 3]) -> [Member; 3] {
    let mut number = 0;
    let members = tokens.map(|token| {
        number += 1;
        Member::start(redis, &format!("{name}-{number}"), token, "")
    });
    for member in &members {
        member.until_lists(3).await;
    }
    members
}

/// Returns the changes of the audit list that operators made at gateways, the newest first.
async fn changes(member: &Member, action: &str) -> Vec<Value> {
    let entries = member.get("audit").await;
    let entries = entries.as_array().expect("a list");
    entries.iter().filter(|entry| entry["action"] == action && entry["operator"] == "ann").cloned().collect()
}

/// Returns the changes as soon as the list has this many.
#[track_caller]
fn until_changes(member: &Member, action: &str, number: usize) -> impl Future<Output = Vec<Value>> {
    soon(async move {
        loop {
            let found = changes(member, action).await;
            if found.len() >= number {
                return found;
            }
            tokio::task::yield_now().await;
        }
    })
}

fn commands(redis: &mut Connection) -> Vec<String> {
    cmd("ZRANGE").arg(&[COMMANDS, "0", "-1"]).query(redis).expect("commands")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_all_reloads_gateways_with_the_token() {
    let Some(redis) = RedisServer::start() else { return };
    let other = "fedcba9876543210fedcba9876543210";
    let members = three(&redis, "reload", [TOKEN, TOKEN, other]).await;
    members.iter().for_each(|member| member.write(&redis, "# changed\n"));
    let wrong = members[0].token_file(other);
    let (code, out) = members[0].run(&["reload", "--all", "--token-file", &wrong]);
    assert_eq!((code, out.contains("the token is not in the token file")), (1, true), "{out}");
    assert!(commands(&mut redis.connection()).is_empty(), "a gateway signs only for its own operators");

    let token = members[0].token_file(TOKEN);
    let (code, out) = members[0].run(&["reload", "--all", "--token-file", &token, "--json"]);
    let result: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let mut outcomes: Vec<_> = std::iter::zip(each(&result, "name"), each(&result, "outcome")).collect();
    outcomes.sort_by_key(|(name, _)| name.to_string());
    let expected = [("reload-1", "done"), ("reload-2", "done"), ("reload-3", "refused")];
    assert_eq!((code, outcomes), (1, expected.map(|(name, outcome)| (json!(name), json!(outcome))).to_vec()), "{out}");

    soon(async { while each(&members[0].get("fleet").await, "differs")[2] != json!(["hash"]) {} }).await;
    let reloads = until_changes(&members[2], "reload", 2).await;
    let mut targets: Vec<_> = reloads.iter().map(|entry| entry["target"].as_str().unwrap_or_default()).collect();
    targets.sort_unstable();
    assert_eq!(targets, ["the rule file (gateway reload-1)", "the rule file (gateway reload-2)"]);
    let texts = commands(&mut redis.connection());
    assert_eq!((texts.len(), texts[0].contains(TOKEN)), (1, false), "{texts:?}");
}

/// An attacker who can write to Redis repeats a command that an operator signed, also after its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captured_command_is_executed_once() {
    let Some(redis) = RedisServer::start() else { return };
    let members = three(&redis, "replay", [TOKEN; 3]).await;
    let token = members[0].token_file(TOKEN);
    let reload = || {
        let (code, out) = members[0].run(&["reload", "--all", "--token-file", &token]);
        assert_eq!((code, out.matches("  done").count()), (0, 3), "{out}");
    };
    reload();
    let mut connection = redis.connection();
    let captured = commands(&mut connection).remove(0);
    // The same signature in other letters is another text.
    let (signature, text) = captured.split_once(' ').expect("a signature");
    let copy = format!("{} {text}", signature.to_uppercase());
    let longer = captured.replacen("\"expires\":1", "\"expires\":2", 1);
    let mut add = |text: &str| cmd("ZADD").arg(&[COMMANDS, "9e15", text]).exec(&mut connection).expect("added");
    [&copy, &longer].iter().for_each(|text| add(text));
    reload();
    let count = until_changes(&members[0], "reload", 6).await.len();
    assert_eq!(count, 6, "three gateways, two commands");

    let fields: Value = serde_json::from_str(text).expect("JSON");
    let expires = fields["expires"].as_u64().expect("a time");
    let mut clock = redis.connection();
    soon(async {
        while cmd("TIME").query::<(u64, u64)>(&mut clock).expect("a time").0 * 1_000 <= expires + 1_000 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    add(&copy.replacen(&signature.to_uppercase(), &mixed(signature), 1));
    reload();
    assert_eq!(until_changes(&members[0], "reload", 9).await.len(), 9, "the command had ended");
}

/// Writes the first letter of a hexadecimal text in upper case.
fn mixed(text: &str) -> String {
    let at = text.find(|letter: char| letter.is_ascii_lowercase()).expect("a letter");
    text[..at].to_owned() + &text[at..=at].to_uppercase() + &text[at + 1..]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_all_drains_a_target_everywhere() {
    let Some(redis) = RedisServer::start() else { return };
    let members = three(&redis, "drain", [TOKEN; 3]).await;
    let token = members[0].token_file(TOKEN);
    let drain = |target: &str, more: &[&str]| {
        members[1].run(&[&["drain", "api", target, "--all", "--token-file", &token], more].concat())
    };
    let states = async || {
        let mut states = Vec::new();
        for member in &members {
            states.push(member.get("upstreams").await[0]["targets"][0]["state"].clone());
        }
        states
    };
    let (code, out) = drain("127.0.0.1:1", &["--for", "10m", "--reason", "update"]);
    assert_eq!((code, out.matches("  done").count()), (0, 3), "{out}");
    assert_eq!(states().await, ["draining"; 3]);
    let entries = until_changes(&members[2], "drain", 3).await;
    assert!(entries.iter().all(|entry| entry["reason"] == "update"), "{entries:?}");
    let (code, out) = drain("127.0.0.1:1", &["--undo"]);
    assert_eq!(
        (code, out.matches("  done").count(), states().await.contains(&json!("draining"))),
        (0, 3, false),
        "{out}"
    );
    let (code, out) = drain("127.0.0.1:2", &[]);
    assert_eq!((code, out.matches("  failed  the upstream has no target").count()), (1, 3), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_need_a_token_and_a_shared_store() {
    let memory = Admin::with_tokens("");
    let token = memory.folder.join("token");
    std::fs::write(&token, TOKEN).expect("written");
    let (code, _, error) = memory.run(&["reload", "--all"], Some(&token)).await;
    assert_eq!((code, error.contains("no other gateway can share the store")), (1, true), "{error}");

    let Some(redis) = RedisServer::start() else { return };
    let unix = Admin::start("unix:FOLDER/admin.sock", &format!("store: {}\n", redis.rule()));
    let (code, _, error) = unix.run(&["reload", "--all"], None).await;
    assert_eq!((code, error.contains("needs a token, also over a Unix socket")), (1, true), "{error}");
}
