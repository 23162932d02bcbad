//! The files of cases: what is sent, what is answered, and what an origin may see of it.
//!
//! A case is a block of lines, and an empty line ends it:
//!
//! ```text
//! A sentence that says what is wrong with it, and where that is written
//! > GET / HTTP/1.1\r\n          what the client sends: these lines, without their ends, one behind the other
//! eof                           and then it sends no more; only where a message is not whole
//! << HTTP/1.1 200 OK\r\n\r\n    what the origin answers, where that is the attack
//! << eof                        and closes
//! < 400 close                   an answer: its status (or `400|501`); `close`: it says so, and nothing follows; `close?`: it
//!                               may; `head`: to a HEAD; `broken`: it is cut off; `maybe`: or the end; `"text"`: its
//!                               body
//! <+ name: value                which has this field, once; `<- name`: has none
//! => POST /p "body"             a whole request that an origin gets, in this order, and no other
//! => guarded: POST /p           ... the other origin, that of /login
//! =+ name: value                which has this field, once; `=- name`: has none
//! =t name: value                and this trailer; `=-t name`: has none
//! ~> POST /p                    a request that may have begun to arrive, and was broken off
//! pending: 3                    it does not hold yet
//! ```
//!
//! `\r \n \t \0 \xHH \\ \s` (a space) are bytes, `{text*100}` is a repetition, and `{n}` a number that no other run has.

/// A case.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    pub place: String,
    pub sent: String,
    pub eof: bool,
    /// What the origin answers, and whether it closes then.
    pub origin: Option<(String, bool)>,
    pub answers: Vec<Answer>,
    pub requests: Vec<Request>,
    /// `METHOD TARGET` of what may have begun.
    pub begun: Vec<String>,
    pub pending: Option<String>,
}

/// An answer that is expected.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub statuses: Vec<u16>,
    pub close: bool,
    /// It may close, and then says so.
    pub may_close: bool,
    /// There may be none.
    pub maybe: bool,
    pub head: bool,
    pub broken: bool,
    pub body: Option<String>,
    pub fields: Fields,
}

/// A request that the origin is expected to get.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub asked: String,
    pub guarded: bool,
    pub body: String,
    pub fields: Fields,
}

/// Fields that a message has once, and those that it has not.
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
        "<" => case.answers.push(answer(rest, place)),
        "=>" => case.requests.push(request(rest)),
        "<+" => case.answers.last_mut().expect(place).fields.present.push(field(rest, place)),
        "<-" => case.answers.last_mut().expect(place).fields.absent.push(rest.to_owned()),
        "=+" => case.requests.last_mut().expect(place).fields.present.push(field(rest, place)),
        "=t" => case.requests.last_mut().expect(place).fields.trailers.push(field(rest, place)),
        "=-t" => case.requests.last_mut().expect(place).fields.absent_trailers.push(rest.to_owned()),
        "=-" => case.requests.last_mut().expect(place).fields.absent.push(rest.to_owned()),
        "~>" => case.begun.push(rest.to_owned()),
        "pending:" => case.pending = Some(rest.to_owned()),
        _ => panic!("{place}: what is {sign:?}?"),
    }
}

fn answer(text: &str, place: &str) -> Answer {
    let (words, body) = body_of(text);
    let mut answer = Answer { body, ..Answer::default() };
    for word in words.split_whitespace() {
        match word {
            "close" => answer.close = true,
            "maybe" => answer.maybe = true,
            "close?" => answer.may_close = true,
            "head" => answer.head = true,
            "broken" => answer.broken = true,
            statuses => answer.statuses = statuses.split('|').map(|status| status.parse().expect(place)).collect(),
        }
    }
    answer
}

fn request(text: &str) -> Request {
    let (words, body) = body_of(text);
    let (guarded, asked) = match words.strip_prefix("guarded: ") {
        Some(asked) => (true, asked),
        None => (false, words),
    };
    Request { asked: asked.trim().to_owned(), guarded, body: body.unwrap_or_default(), fields: Fields::default() }
}

/// What stands before ` "`, and what stands between it and the last quotation mark.
fn body_of(text: &str) -> (&str, Option<String>) {
    match text.split_once(" \"").and_then(|(words, rest)| Some((words, rest.strip_suffix('"')?))) {
        Some((words, body)) => (words, Some(body.to_owned())),
        None => (text, None),
    }
}

fn field(text: &str, place: &str) -> (String, String) {
    let (name, value) = text.split_once(':').expect(place);
    (name.to_owned(), value.trim().to_owned())
}

/// The bytes that a text of the file stands for.
pub fn bytes(text: &str, number: u32) -> Vec<u8> {
    let (text, mut bytes) = (repeated(&text.replace("{n}", &number.to_string())), Vec::new());
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
            _ => panic!("no escape: {text}"),
        };
        bytes.push(escaped);
        rest = &tail[length..];
    }
    bytes
}

/// `{ab*3}` is `ababab`.
fn repeated(text: &str) -> String {
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
fn a_case_is_read_as_it_is_written() {
    let text = "# none\n\nOne\n> a\\r\\n\n> {b*3}{n}\\x41\neof\n< 400|501 close \"no \"x\"\"\n<- a\n=> guarded: GET /\n=+ b: c\n\nTwo\n> x\n";
    let cases = parse("f", text);
    assert_eq!(cases.len(), 2);
    let case = &cases[0];
    assert_eq!((case.name.as_str(), case.place.as_str(), case.eof), ("One", "f:3", true));
    assert_eq!(bytes(&case.sent, 7), b"a\r\nbbb7A");
    assert_eq!((&case.answers[0].statuses[..], case.answers[0].close), (&[400, 501][..], true));
    assert_eq!(case.answers[0].body.as_deref(), Some("no \"x\""));
    assert!(case.requests[0].guarded && case.requests[0].asked == "GET /");
    assert_eq!(case.requests[0].fields.present, [("b".to_owned(), "c".to_owned())]);
}
