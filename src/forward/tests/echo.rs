//! `builtin:echo`.

use super::*;

#[tokio::test]
async fn the_echo_sends_a_body_back_and_describes_a_request_without_one() {
    let gateway = Settings::targets(vec![Target::Echo]).start();
    let page = gateway.ask("GET /a?b HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n").await;
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!((&page["method"], &page["path"]), (&"GET".into(), &"/a?b".into()));
    assert_eq!((&page["headers"]["host"], &page["headers"]["authorization"]), (&"a".into(), &"***".into()));
    let echo = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!((echo.text().as_str(), echo.field("content-type").as_deref()), ("hi", Some("text/x")));
}
