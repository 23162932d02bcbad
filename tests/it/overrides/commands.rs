//! Overrides on the command line.

use serde_json::{Value, json};

use super::{statuses, with_key};
use crate::admin_api::{Admin, TOKEN};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_changes_one_client() {
    let admin = Admin::with_tokens("");
    let token = admin.folder.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("written");
    let run = async |arguments: &[&str]| admin.run(arguments, Some(&token)).await;
    let ban = ["ban", "--address", "127.0.0.0/8", "--for", "1h", "--reason", "a \"test\""];
    let (code, _, errors) = admin.run(&ban, None).await;
    assert_eq!((code, errors.contains("needs a token")), (1, true), "{errors}");
    let (code, out, errors) = run(&ban).await;
    assert_eq!(code, 0, "{errors}");
    let line = |name: &str| out.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).expect("a line");
    assert_eq!((line("action"), line("scope"), line("target")), ("ban", "all routes", "127.0.0.0/8"));
    assert!(line("stored").contains("memory of this gateway"), "{out}");
    assert_eq!(with_key(&admin, "k").await.status(), 403);
    let (code, _, errors) = run(&ban).await;
    assert_eq!((code, errors.contains("--replace")), (1, true), "{errors}");
    assert_eq!(run(&[&ban[..], &["--replace"]].concat()).await.0, 0);
    let all = ["ban", "--address", "0.0.0.0/0", "--for", "1h", "--reason", "all"];
    let (code, _, errors) = run(&all).await;
    assert_eq!((code, errors.contains("`--force`")), (1, true), "{errors}");
    let (code, out, errors) = run(&[&all[..], &["--force", "--json"]].concat()).await;
    let forced: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{errors}"));
    assert_eq!((code, &forced["target"]["address"]), (0, &json!("0.0.0.0/0")));
    assert_eq!(run(&["overrides", "remove", forced["id"].as_str().expect("an id")]).await.0, 0);

    let (code, out, _) = run(&["overrides"]).await;
    assert_eq!((code, out.contains("a \"test\"")), (0, true), "{out}");
    let (_, json, _) = run(&["overrides", "list", "--json"]).await;
    let list: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&list[0]["action"], &list[0]["target"]), (&json!("ban"), &json!({ "address": "127.0.0.0/8" })));
    let id = list[0]["id"].as_str().expect("an id");
    assert_eq!(run(&["overrides", "remove", id]).await.0, 0);
    assert_eq!(run(&["overrides", "remove", id]).await.0, 1);

    let common = ["--limit", "rest/own", "--client", "k", "--for", "1d", "--reason", "launch"];
    let (code, _, errors) = run(&[&["adjust", "--multiply", "1.5"], &common[..]].concat()).await;
    assert_eq!(code, 0, "{errors}");
    assert_eq!(statuses(&admin, "k", 4).await, [200, 200, 200, 429]);
    let (_, out, _) = run(&["client", "rest/own", "k"]).await;
    assert!(out.lines().any(|line| line.starts_with("override") && line.contains("adjust until ")), "{out}");
    let (code, _, errors) = run(&[&["exempt"], &common[..]].concat()).await;
    assert_eq!(code, 0, "{errors}");
    assert_eq!(statuses(&admin, "k", 2).await, [200; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adjustment_names_the_limits_that_it_skips() {
    let admin = Admin::with_tokens("");
    let token = admin.folder.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("written");
    let adjust = ["adjust", "--address", "127.0.0.1", "--multiply", "2", "--for", "1h", "--reason", "a"];
    let (code, out, errors) = admin.run(&adjust, Some(&token)).await;
    assert_eq!(code, 0, "{errors}");
    let skipped = out.lines().find_map(|line| line.strip_prefix("skipped")).map(str::trim);
    assert_eq!(skipped, Some("rest/all: OVERALL, or shared with Redisson"), "{out}");
    let (code, out, _) = admin.run(&[&adjust[..], &["--replace", "--json"]].concat(), Some(&token)).await;
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &json["skipped"]), (0, &json!(["rest/all"])));
    let one = [&adjust[..], &["--limit", "rest/own"]].concat();
    assert!(!admin.run(&one, Some(&token)).await.1.contains("skipped"));
}

#[tokio::test]
async fn incomplete_commands_are_errors() {
    let admin = Admin::with_tokens("");
    for arguments in [
        &["ban", "--address", "192.0.2.1", "--for", "1h"][..],
        &["ban", "--for", "1h", "--reason", "a"],
        &["ban", "--address", "192.0.2.1", "--reason", "a"],
        &["ban", "--client", "k", "--for", "1h", "--reason", "a"],
        &["ban", "--address", "192.0.2.1", "--hash", "0", "--for", "1h", "--reason", "a"],
        &["adjust", "--address", "192.0.2.1", "--for", "1h", "--reason", "a"],
        &["adjust", "--address", "192.0.2.1", "--rate", "5", "--for", "1h", "--reason", "a"],
        &["adjust", "--address", "192.0.2.1", "--multiply", "0", "--for", "1h", "--reason", "a"],
        &["overrides", "remove"],
    ] {
        let (code, _, errors) = admin.run(arguments, None).await;
        assert_eq!((code, errors.contains("error:")), (2, true), "{arguments:?}: {errors}");
    }
}
