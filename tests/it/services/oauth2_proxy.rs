//! The recipe for oauth2-proxy in docs/recipes.md, with a service that answers as oauth2-proxy does with the options of the
//! recipe.

use super::*;
use crate::support::pages::{Page, root};

const SESSION: &str = "_oauth2_proxy=session-of-ann";

/// The gateway of the recipe.
struct Recipe {
    gateway: TestGateway,
    proxy: Origin,
    api: Origin,
}

impl Recipe {
    /// Starts it. `skips_button` is `--skip-provider-button`.
    async fn start(skips_button: bool) -> Self {
        let proxy = Origin::start(move |mut conn: OriginConnection| async move {
            while let Some(request) = conn.request().await {
                conn.raw.send(answer(&request, skips_button)).await;
            }
        })
        .await;
        let api = start_upstream().await;
        let page = Page::read(root().join("docs/recipes.md"));
        let recipe = page.blocks().into_iter().find(|block| block.code.contains("http://oauth2-proxy:4180"));
        let rules = recipe.expect("a recipe").code;
        let rules = rules.replace("oauth2-proxy:4180", &proxy.address.to_string());
        let rules = rules.replace("127.0.0.1:9000", &api.address.to_string());
        Self { gateway: TestGateway::start(&rules), proxy, api }
    }

    async fn get(&self, path: &str, fields: &str) -> Message {
        let request = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n");
        self.gateway.client().await.ask(request).await
    }
}

/// Returns the answer of oauth2-proxy.
fn answer(request: &Message, skips_button: bool) -> String {
    let field = |name: &str| request.field(name).unwrap_or_default();
    let target = request.start.split(' ').nth(1).expect("a target");
    let has_session = field("cookie").split("; ").any(|cookie| cookie == SESSION);
    let (status, fields, body) = if target.starts_with("/oauth2/callback?") {
        ("302 Found", format!("Location: /orders?page=2\r\nSet-Cookie: {SESSION}; HttpOnly\r\n"), "")
    } else if target == "/oauth2/sign_in" {
        ("200 OK", "Content-Type: text/html\r\n".to_owned(), "<p>log in</p>")
    } else if has_session {
        let user = "X-Auth-Request-User: ann\r\nX-Auth-Request-Email: ann@example.com\r\nGAP-Auth: ann\r\n";
        ("202 Accepted", user.to_owned(), "Authenticated")
    } else if field("accept").contains("application/json") {
        ("401 Unauthorized", "Content-Type: application/json\r\n".to_owned(), "{}")
    } else if skips_button {
        let [proto, host, uri] = ["proto", "host", "uri"].map(|name| field(&format!("x-forwarded-{name}")));
        let back = format!("redirect_uri={proto}://{host}/oauth2/callback&state={uri}");
        let fields =
            format!("Location: https://login.example/authorize?{back}\r\nSet-Cookie: _oauth2_proxy_csrf=1\r\n");
        ("302 Found", fields, "")
    } else {
        ("403 Forbidden", "Content-Type: text/html\r\n".to_owned(), "<p>log in</p>")
    };
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn oauth2_proxy_admits_a_session() {
    let recipe = Recipe::start(false).await;
    let fields = format!(
        "Cookie: theme=dark; {SESSION}\r\nAccept: text/html\r\nX-Requested-With: page\r\nX-Other: 1\r\n\
         X-Auth-Request-User: root\r\nX-Auth-Request-Email: root@example.com\r\n"
    );
    let response = recipe.get("/orders?page=2", &fields).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "hi"));
    let forwarded = recipe.api.last_request();
    assert_eq!(forwarded.field("x-auth-request-user").as_deref(), Some("ann"));
    assert_eq!(forwarded.field("x-auth-request-email").as_deref(), Some("ann@example.com"));
    assert_eq!(forwarded.field("gap-auth"), None);
    let question = recipe.proxy.last_request();
    let received = ["cookie", "accept", "x-requested-with", "x-other", "x-auth-request-user"];
    let cookies = format!("theme=dark; {SESSION}");
    let expected = [Some(cookies.as_str()), Some("text/html"), Some("page"), None, None];
    assert_eq!(received.map(|name| question.field(name)), expected.map(|value| value.map(str::to_owned)));
}

#[tokio::test]
async fn oauth2_proxy_answers_without_a_session() {
    let recipe = Recipe::start(false).await;
    let page = recipe.get("/orders", "Accept: text/html\r\nX-Auth-Request-User: root\r\n").await;
    let shown = (page.status(), page.text(), page.field("content-type"));
    assert_eq!(shown, (403, "<p>log in</p>".to_owned(), Some("text/html".to_owned())));
    let call = recipe.get("/orders", "Accept: application/json\r\n").await;
    let shown = (call.status(), call.text(), call.field("content-type"));
    assert_eq!(shown, (401, "{}".to_owned(), Some("application/json".to_owned())));
    let forged = recipe.get("/orders", "Cookie: _oauth2_proxy=other\r\n").await;
    assert_eq!(forged.status(), 403);
    assert!(recipe.api.requests().is_empty());
}

/// The whole way from the first request to its page.
#[tokio::test]
async fn oauth2_proxy_logs_a_user_in() {
    let recipe = Recipe::start(true).await;
    let to_login = recipe.get("/orders?page=2", "Accept: text/html\r\n").await;
    let back = "redirect_uri=http://shop.example/oauth2/callback&state=/orders?page=2";
    let expected = format!("https://login.example/authorize?{back}");
    assert_eq!((to_login.status(), to_login.field("location")), (302, Some(expected)));
    assert_eq!(to_login.field("set-cookie").as_deref(), Some("_oauth2_proxy_csrf=1"));
    assert_eq!(recipe.get("/oauth2/sign_in", "").await.text(), "<p>log in</p>");
    let asked = recipe.proxy.requests().len();
    let logged_in = recipe.get("/oauth2/callback?code=1&state=x", "Cookie: _oauth2_proxy_csrf=1\r\n").await;
    assert_eq!((logged_in.status(), logged_in.field("location")), (302, Some("/orders?page=2".to_owned())));
    assert_eq!(recipe.proxy.requests().len(), asked + 1, "the login itself needs no permission");
    let callback = recipe.proxy.last_request();
    assert_eq!(callback.start, "GET /oauth2/callback?code=1&state=x HTTP/1.1");
    assert_eq!(callback.field("host").as_deref(), Some("shop.example"));
    let cookie = logged_in.field("set-cookie").expect("a cookie");
    let cookie = cookie.split(';').next().expect("its value").to_owned();
    let page = recipe.get("/orders?page=2", &format!("Cookie: {cookie}\r\n")).await;
    assert_eq!((page.status(), recipe.api.requests().len()), (200, 1));
    assert_eq!(recipe.api.last_request().field("x-auth-request-user").as_deref(), Some("ann"));
}
