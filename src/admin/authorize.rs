//! Authorizes changes: on a Unix socket the file mode decides; over TCP every change needs a token. A browser must not send
//! changes for a page of another site.

use std::path::PathBuf;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use super::problem::Problem;
use tidegate_config::{Config, Tokens};

/// How the admin listener authorizes changes.
#[derive(Clone, Debug)]
pub(super) struct Authorizer {
    is_unix: bool,
    tokens: Option<PathBuf>,
}

/// The name for connections to a Unix socket without a token.
const UNIX_SOCKET: &str = "unix socket";

const NO_TOKENS: &str = "changes over TCP need a token: set `admin: { address: ..., tokens: { file: FILE } }` in the rule \
                         file, or let `admin` listen on a Unix socket";

impl Authorizer {
    pub(super) fn new(config: &Config) -> Self {
        let is_unix = config.admin.as_ref().is_some_and(|address| address.path().is_some());
        Self { is_unix, tokens: config.admin_tokens.clone() }
    }

    /// Returns a fixed word for what a change needs: `open` for nothing, `token`, or `no_tokens` if none is configured.
    pub(super) fn changes(&self) -> &'static str {
        match (self.is_unix, &self.tokens) {
            (true, _) => "open",
            (false, Some(_)) => "token",
            (false, None) => "no_tokens",
        }
    }

    /// Returns the name of the operator who sends a change.
    pub(super) async fn authorize(&self, headers: &HeaderMap) -> Result<String, Problem> {
        check_origin(headers)?;
        let token = bearer_token(headers);
        if self.is_unix && token.is_none() {
            return Ok(UNIX_SOCKET.to_owned());
        }
        let Some(file) = self.tokens.clone() else {
            return Err(Problem::new(StatusCode::FORBIDDEN, NO_TOKENS));
        };
        let Some(token) = token else {
            let detail = "this change needs a token: `Authorization: Bearer TOKEN`";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, detail));
        };
        let tokens = read(file).await?;
        let name = tokens.name_of(token).map(str::to_owned);
        name.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "the token is not in the token file"))
    }

    /// Reads the tokens that may sign commands for all gateways.
    ///
    /// # Errors
    /// There is no token file, or it is not usable.
    pub(super) async fn read_tokens(&self) -> Result<Tokens, Problem> {
        let file = self.tokens.clone();
        read(file.ok_or_else(|| Problem::new(StatusCode::FORBIDDEN, "the gateway has no token file"))?).await
    }
}

/// Reads a token file. It is read for each change, so that a removed token has no effect any more.
async fn read(file: PathBuf) -> Result<Tokens, Problem> {
    // On a blocking thread, since the file may be on a network file system.
    match tokio::task::spawn_blocking(move || Tokens::read(&file)).await {
        Ok(Ok(tokens)) => Ok(tokens),
        Ok(Err(error)) => {
            tracing::error!(%error, "token file is not usable, rejecting a change");
            Err(Problem::new(StatusCode::FORBIDDEN, format!("the token file is not usable: {error}")))
        }
        Err(_) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the token file was not read")),
    }
}

/// Rejects a request that a page from another site starts, for example for a picture. Browsers say so.
pub(super) fn check_same_site(headers: &HeaderMap) -> Result<(), Problem> {
    let site = headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes);
    match site {
        None | Some(b"same-origin" | b"none") => check_origin(headers),
        Some(_) => Err(Problem::new(StatusCode::FORBIDDEN, "the request is from another site")),
    }
}

/// Rejects a request of a page from another site. Other clients than browsers send no `Origin`.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let is_own = headers.get_all(ORIGIN).iter().count() == 1
        && [&b"http://"[..], b"https://"].iter().any(|scheme| origin.as_bytes().strip_prefix(*scheme) == Some(host));
    if is_own { Ok(()) } else { Err(Problem::new(StatusCode::FORBIDDEN, "`Origin` is another site")) }
}

/// Returns the token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (http::HeaderName::from_static(name), value.parse().expect("a header value"))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn only_pages_of_the_gateway_may_send_changes() {
        let host = ("host", "127.0.0.1:9901");
        for (origin, is_own) in [
            ("http://127.0.0.1:9901", true),
            ("https://127.0.0.1:9901", true),
            ("http://127.0.0.1:9902", false),
            ("http://127.0.0.1:9901.evil.example", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(check_origin(&headers(&[host, ("origin", origin)])).is_ok(), is_own, "{origin}");
        }
        assert!(check_origin(&headers(&[host])).is_ok());
    }

    #[test]
    fn token_follows_the_scheme() {
        let token = |value| bearer_token(&headers(&[("authorization", value)])).map(<[u8]>::to_vec);
        assert_eq!(token("Bearer  abc "), Some(b"abc".to_vec()));
        assert_eq!(token("bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("Bearer"), None);
    }
}
