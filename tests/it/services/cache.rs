//! Permissions that are kept for equal requests.

use super::*;

#[tokio::test]
async fn equal_request_is_not_asked_about_again() {
    let asked = Asked::start("pass: [x-user], cache: 1h", "").await;
    assert_eq!(asked.statuses(["ann", "ann", "ann"]).await, [200; 3]);
    assert_eq!(asked.service.requests().len(), 1);
    let users = asked.upstream.requests();
    let users: Vec<_> = users.iter().filter_map(|request| request.field("x-user")).collect();
    assert_eq!(users, ["ann"; 3]);
    assert_eq!((asked.count("allowed").await, asked.count("cached").await), (1, 2));
}

#[tokio::test]
async fn other_request_is_asked_about() {
    let asked = Asked::start("cache: 1h", "").await;
    let ask = async |path: &str, fields: &str| asked.gateway.get(path, fields).await.status();
    for (path, fields) in [
        ("/", "Cookie: ann\r\n"),
        ("/", "Cookie: unnamed\r\n"),
        ("/a", "Cookie: ann\r\n"),
        ("/?a", "Cookie: ann\r\n"),
        ("/", "Cookie: ann\r\nAuthorization: a\r\n"),
        ("/", "Cookie: ann\r\nAuthorization: b\r\n"),
    ] {
        let before = asked.service.requests().len();
        assert_eq!((ask(path, fields).await, ask(path, fields).await), (200, 200), "{path} {fields}");
        assert_eq!(asked.service.requests().len(), before + 1, "{path} {fields}");
    }
    let before = asked.service.requests().len();
    for request in [
        "GET / HTTP/1.1\r\nHost: b\r\nCookie: ann\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test.example\r\nCookie: ann\r\nContent-Length: 0\r\n\r\n",
    ] {
        assert_eq!(asked.gateway.client().await.ask(request).await.status(), 200);
    }
    // A field that the service does not receive makes no difference.
    assert_eq!(ask("/", "Cookie: ann\r\nX-Other: 1\r\n").await, 200);
    assert_eq!(asked.service.requests().len(), before + 2);
}

#[tokio::test]
async fn only_permissions_are_kept() {
    let asked = Asked::start("cache: 1h, timeout: 100ms", "").await;
    for cookie in ["none", "login", "forbidden", "error", "odd", "private"] {
        let before = asked.service.requests().len();
        asked.statuses([cookie, cookie]).await;
        assert_eq!(asked.service.requests().len(), before + 2, "{cookie}");
    }
}

#[tokio::test]
async fn permission_survives_a_reload_with_the_same_service() {
    let asked = Asked::start("cache: 1h, pass: [x-user]", "").await;
    assert_eq!(asked.statuses(["ann"]).await, [200]);
    let reload = |keys: &str| {
        asked.gateway.reload(&rules(&asked.upstream, &requirement(&asked.service, keys), "max_body: 1KiB"));
    };
    reload("cache: 30m, pass: [x-user]");
    assert_eq!((asked.statuses(["ann"]).await, asked.service.requests().len()), ([200], 1));
    // Other fields are passed, so the kept ones do not suffice.
    reload("cache: 30m, pass: [x-user, x-plan]");
    assert_eq!((asked.statuses(["ann"]).await, asked.service.requests().len()), ([200], 2));
    assert_eq!(asked.upstream.last_request().field("x-plan").as_deref(), Some("gold"));
}
