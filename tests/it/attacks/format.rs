//! The format of the case files: the bytes that the client sends, the expected responses, and the expected requests at
//! the origins.
//!
//! A case is a block of lines, and an empty line ends it:
//!
//! ```text
//! A sentence that names the fault, with a reference if useful
//! > GET / HTTP/1.1\r\n          bytes that the client sends; these lines are joined without line ends
//! eof                           the client then closes its side; only for incomplete messages
//! << HTTP/1.1 200 OK\r\n\r\n    the response of the origin, if the origin is the attacker
//! << eof                        the origin then closes
//! < 400 close                   an expected response: its status (or `400|501`); `close`: it has `connection: close`, and
//!                               nothing follows; `close?`: it may have; `head`: to a HEAD; `broken`: truncated;
//!                               `maybe`: or the end of the connection; `"text"`: its body
//! <+ name: value                the response has this field once; `<- name`: not at all
//! => POST /p "body"             an expected request at the open origin; order matters, and there are no others
//! => guarded: POST /p           an expected request at the guarded origin, that of /login
//! =+ name: value                the request has this field once; `=- name`: not at all
//! =t name: value                the request has this trailer once; `=-t name`: not at all
//! ~> POST /p                    a request that may arrive at an origin in part
//! pending: 3                    the case fails at present
//! ```
//!
//! `\r \n \t \0 \xHH \\ \s` (a space) are bytes, `{text*100}` is a repetition, and `{n}` is a unique number for each
//! run.

/// A case of a file.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    pub place: String,
    pub sent: String,
    pub eof: bool,
    /// The response of the origin, and whether the origin then closes.
    pub origin: Option<(String, bool)>,
    pub responses: Vec<Response>,
    pub requests: Vec<Request>,
    /// `METHOD TARGET` of requests that may arrive in part.
    pub begun: Vec<String>,
    pub pending: Option<String>,
}

/// An expected response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub statuses: Vec<u16>,
    pub close: bool,
    /// The response may have `connection: close`.
    pub may_close: bool,
    /// The connection may end without a response.
    pub maybe: bool,
    pub head: bool,
    pub broken: bool,
    pub body: Option<String>,
    pub fields: Fields,
}

/// An expected request at an origin.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub asked: String,
    pub guarded: bool,
    pub body: String,
    pub fields: Fields,
}

/// Fields that a message must have once, and fields that it must not have.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    pub present: Vec<(String, String)>,
    pub absent: Vec<String>,
    pub trailers: Vec<(String, String)>,
    pub absent_trailers: Vec<String>,
}

/// Reads the cases of a file.
pub fn parse(file: &str, text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case: Option<Case> = None;
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        match (line.split_once(' ').unwrap_or((line, "")), &mut case) {
            (("", ""), case) => cases.extend(case.take()),
            (("#", _), _) => {}
            (_, None) => case = Some(Case { name: line.to_owned(), place, ..Case::default() }),
            ((sign, rest), Some(case)) => add(case, sign, rest, &place),
        }
    }
    cases.extend(case);
    cases
}

fn add(case: &mut Case, sign: &str, rest: &str, place: &str) {
    match sign {
        ">" => case.sent.push_str(rest),
        "eof" => case.eof = true,
        "<<" if rest == "eof" => case.origin.get_or_insert_default().1 = true,
        "<<" => case.origin.get_or_insert_default().0.push_str(rest),
        "<" if rest == "nothing" => {}
        "<" => case.responses.push(response(rest, place)),
        "=>" => case.requests.push(request(rest)),
        "<+" => case.responses.last_mut().expect(place).fields.present.push(field(rest, place)),
        "<-" => case.responses.last_mut().expect(place).fields.absent.push(rest.to_owned()),
        "=+" => case.requests.last_mut().expect(place).fields.present.push(field(rest, place)),
        "=t" => case.requests.last_mut().expect(place).fields.trailers.push(field(rest, place)),
        "=-t" => case.requests.last_mut().expect(place).fields.absent_trailers.push(rest.to_owned()),
        "=-" => case.requests.last_mut().expect(place).fields.absent.push(rest.to_owned()),
        "~>" => case.begun.push(rest.to_owned()),
        "pending:" => case.pending = Some(rest.to_owned()),
        _ => panic!("{place}: unknown sign {sign:?}"),
    }
}

fn response(text: &str, place: &str) -> Response {
    let (words, body) = split_body(text);
    let mut response = Response { body, ..Response::default() };
    for word in words.split_whitespace() {
        match word {
            "close" => response.close = true,
            "maybe" => response.maybe = true,
            "close?" => response.may_close = true,
            "head" => response.head = true,
            "broken" => response.broken = true,
            statuses => response.statuses = statuses.split('|').map(|status| status.parse().expect(place)).collect(),
        }
    }
    response
}

fn request(text: &str) -> Request {
    let (words, body) = split_body(text);
    let (guarded, asked) = match words.strip_prefix("guarded: ") {
        Some(asked) => (true, asked),
        None => (false, words),
    };
    Request { asked: asked.trim().to_owned(), guarded, body: body.unwrap_or_default(), fields: Fields::default() }
}

/// Splits the text before ` "` from the quoted body after it.
fn split_body(text: &str) -> (&str, Option<String>) {
    match text.split_once(" \"").and_then(|(words, rest)| Some((words, rest.strip_suffix('"')?))) {
        Some((words, body)) => (words, Some(body.to_owned())),
        None => (text, None),
    }
}

fn field(text: &str, place: &str) -> (String, String) {
    let (name, value) = text.split_once(':').expect(place);
    (name.to_owned(), value.trim().to_owned())
}

/// Decodes a text of the file to bytes.
pub fn bytes(text: &str, number: u32) -> Vec<u8> {
    let (text, mut bytes) = (expand_repetitions(&text.replace("{n}", &number.to_string())), Vec::new());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (escaped, length) = match tail {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b's', ..] => (b' ', 1),
            [b'0', ..] => (0, 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("hexadecimal digits");
                (u8::from_str_radix(digits, 16).expect("hexadecimal digits"), 3)
            }
            _ => panic!("invalid escape: {text}"),
        };
        bytes.push(escaped);
        rest = &tail[length..];
    }
    bytes
}

/// Expands repetitions: `{ab*3}` becomes `ababab`.
fn expand_repetitions(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once('{') {
        result.push_str(before);
        let repetition = tail.split_once('}').and_then(|(inner, tail)| {
            let (part, count) = inner.rsplit_once('*')?;
            Some((part.repeat(count.parse().ok()?), tail))
        });
        match repetition {
            Some((part, tail)) => {
                result.push_str(&part);
                rest = tail;
            }
            None => {
                result.push('{');
                rest = tail;
            }
        }
    }
    result + rest
}

#[test]
fn case_file_is_parsed() {
    let text = "# none\n\nOne\n> a\\r\\n\n> {b*3}{n}\\x41\neof\n< 400|501 close \"no \"x\"\"\n<- a\n=> guarded: GET /\n=+ b: c\n\nTwo\n> x\n";
    let cases = parse("f", text);
    assert_eq!(cases.len(), 2);
    let case = &cases[0];
    assert_eq!((case.name.as_str(), case.place.as_str(), case.eof), ("One", "f:3", true));
    assert_eq!(bytes(&case.sent, 7), b"a\r\nbbb7A");
    assert_eq!((&case.responses[0].statuses[..], case.responses[0].close), (&[400, 501][..], true));
    assert_eq!(case.responses[0].body.as_deref(), Some("no \"x\""));
    assert!(case.requests[0].guarded && case.requests[0].asked == "GET /");
    assert_eq!(case.requests[0].fields.present, [("b".to_owned(), "c".to_owned())]);
}
