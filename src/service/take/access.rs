//! The access of programs: only this machine can reach a Unix socket or a loopback address. At any other address, each request
//! needs a token of the admin API.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::admin::bearer_token;
use crate::service::problem::Problem;
use tidegate_config::Tokens;

/// How long the tokens of a file are used until the file is read again.
const MAX_AGE: Duration = Duration::from_secs(1);

const NO_TOKENS: &str = "`service.http` is no loopback address, and there are no tokens";
const SET_TOKENS: &str = "set `admin: { address: ..., tokens: { file: FILE } }` in the rule file, or let `service.http` \
                          listen on loopback or on a Unix socket";

/// The condition for a request.
#[derive(Clone, Debug)]
pub(in crate::service) enum Access {
    /// Nothing: only this machine can connect.
    Open,
    /// A token.
    Token(TakeTokens),
}

/// The tokens in the file of the admin API. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TakeTokens(Option<Arc<TokenFile>>);

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    /// The tokens, and when they were read.
    tokens: Mutex<Option<(Instant, Arc<Tokens>)>>,
}

impl Access {
    /// Checks whether a request with these fields may take permits.
    ///
    /// # Errors
    /// It lacks a valid token.
    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Self::Token(TakeTokens(file)) = self else { return Ok(()) };
        let Some(file) = file else {
            return Err(Problem::new(StatusCode::FORBIDDEN, NO_TOKENS).with_help(SET_TOKENS));
        };
        let Some(token) = bearer_token(headers) else { return Err(unauthorized("the request has no token")) };
        match file.read().await?.name_of(token) {
            Some(_) => Ok(()),
            None => Err(unauthorized("the token is not in the token file")),
        }
    }
}

fn unauthorized(detail: &'static str) -> Problem {
    let problem = Problem::new(StatusCode::UNAUTHORIZED, detail).with_help("send `Authorization: Bearer TOKEN`");
    problem.with_field(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

impl TakeTokens {
    /// Creates the tokens of a file. Without a file, no request has access.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self(path.map(|path| Arc::new(TokenFile { path, tokens: Mutex::default() })))
    }
}

impl TokenFile {
    /// Returns the tokens. Reads the file if it was not read within a second, so that a removed token soon has no effect.
    async fn read(&self) -> Result<Arc<Tokens>, Problem> {
        let mut tokens = self.tokens.lock().await;
        if let Some((read_at, tokens)) = &*tokens
            && read_at.elapsed() < MAX_AGE
        {
            return Ok(Arc::clone(tokens));
        }
        let path = self.path.clone();
        // On a blocking thread, since the file may be on a network file system.
        let read = match tokio::task::spawn_blocking(move || Tokens::read(&path)).await {
            Ok(Ok(read)) => Arc::new(read),
            Ok(Err(error)) => {
                tracing::error!(%error, "token file is not usable, rejecting a request for permits");
                return Err(Problem::new(StatusCode::FORBIDDEN, "the token file is not usable"));
            }
            Err(_) => return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the token file was not read")),
        };
        *tokens = Some((Instant::now(), Arc::clone(&read)));
        Ok(read)
    }
}
