//! Describes the services, so that clients such as grpcurl need no files to call them (grpc/reflection/v1/reflection.proto).
//! A client sends several questions in one stream, and waits for each answer.

mod files;
mod messages;

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use prost::Message;
use tokio::time::{Instant, timeout_at};

use self::files::{all_services, find_files};
use self::messages::{
    Answer, Error, FileDescriptors, Question, ServerReflectionRequest, ServerReflectionResponse, Service, Services,
};
use super::GRPC;
use super::status::{GRPC_STATUS, Status};
use crate::service::bad_call::BadCall;
use crate::service::response_body::CallBody;
use tidegate_proxy::http::grpc::{BadFrame, frame};
use tidegate_proxy::http::grpc_messages::{BadMessage, Messages};
use tidegate_proxy::upstream::RequestBody;

/// The paths of the call. Clients try the second one if the first one is missing, and some know only the second one.
pub(super) const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The longest question, in bytes.
const MAX_QUESTION: usize = 1_024;

/// The questions of a stream. A client that describes all that is served asks fewer than 100.
const MAX_QUESTIONS: usize = 1_000;

/// The longest time of a stream.
const MAX_TIME: Duration = Duration::from_secs(60);

/// `NOT_FOUND` and `UNIMPLEMENTED` of google.rpc.Code.
const NOT_FOUND: i32 = 5;
const UNIMPLEMENTED: i32 = 12;

/// A stream of questions.
struct Session {
    body: RequestBody,
    messages: Messages,
    /// The questions that the stream has had.
    questions: usize,
    end: Instant,
    has_ended: bool,
}

/// Responds to a stream: with an answer to each question, in order.
pub(super) fn respond(body: RequestBody) -> Response<CallBody> {
    let (messages, end) = (Messages::new(MAX_QUESTION), Instant::now() + MAX_TIME);
    let session = Session { body, messages, questions: 0, end, has_ended: false };
    let frames = stream::unfold(session, |mut session| async { Some((session.next_frame().await?, session)) });
    let mut response = Response::new(CallBody::from_frames(frames));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

impl Session {
    /// Returns the next frame of the response: an answer, or the trailers at the end. Returns `None` after the trailers.
    async fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        if self.has_ended {
            return None;
        }
        let trailers = match self.next_question().await {
            Ok(Some(question)) => return Some(Frame::data(frame(&answer(question)).into())),
            Ok(None) => HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]),
            Err(status) => status.into_trailers(),
        };
        self.has_ended = true;
        Some(Frame::trailers(trailers))
    }

    /// Returns the next question. Returns `None` at the end of the stream.
    ///
    /// # Errors
    /// The stream exceeds a bound, or has something other than questions.
    async fn next_question(&mut self) -> Result<Option<ServerReflectionRequest>, Status> {
        loop {
            if let Some(message) = self.messages.next_message()? {
                self.questions += 1;
                if self.questions > MAX_QUESTIONS {
                    return Err(Status::TOO_MANY_QUESTIONS);
                }
                return Ok(Some(ServerReflectionRequest::decode(message).map_err(BadCall::from)?));
            }
            let next = timeout_at(self.end, self.body.frame()).await;
            let Some(piece) = next.map_err(|_| Status::STREAM_TOO_LONG)? else { break };
            // Trailers have no meaning.
            let Ok(data) = piece.map_err(|_| BadCall::Incomplete)?.into_data() else { continue };
            self.messages.push(&data.into_bytes().map_err(|_| BadCall::Incomplete)?);
        }
        Ok(None)
    }
}

/// Returns the answer to a question.
fn answer(request: ServerReflectionRequest) -> ServerReflectionResponse {
    let answer = match &request.question {
        Some(Question::FileByFilename(name)) => files_or_error(find_files(|file| file.name() == name)),
        Some(Question::FileContainingSymbol(symbol)) => files_or_error(find_files(|file| file.has_symbol(symbol))),
        Some(Question::FileContainingExtension(_) | Question::AllExtensionNumbersOfType(_)) => {
            error(NOT_FOUND, "the services have no extensions")
        }
        Some(Question::ListServices(_)) => {
            let service = all_services().map(|name| Service { name }).collect();
            Answer::Services(Services { service })
        }
        None => error(UNIMPLEMENTED, "this question is not supported"),
    };
    ServerReflectionResponse { valid_host: request.host.clone(), original_request: Some(request), answer: Some(answer) }
}

fn files_or_error(files: Vec<Bytes>) -> Answer {
    if files.is_empty() {
        return error(NOT_FOUND, "the services have no such file or symbol");
    }
    Answer::Files(FileDescriptors { file_descriptor_proto: files })
}

fn error(code: i32, message: &str) -> Answer {
    Answer::Error(Error { error_code: code, error_message: message.to_owned() })
}

impl From<BadMessage> for Status {
    fn from(error: BadMessage) -> Self {
        match error {
            BadMessage::Compressed => BadCall::Frame(BadFrame::Compressed).into(),
            BadMessage::TooLong { .. } => Self::QUESTION_TOO_LONG,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;

    use super::*;
    use tidegate_proxy::transport::BodyData;

    /// Returns the frames of the response to a stream that stays open after its data.
    async fn frames(data: Vec<u8>) -> Vec<Frame<Bytes>> {
        let sent = stream::iter([Ok::<_, Infallible>(Frame::data(BodyData::from(Bytes::from(data))))]);
        let body = RequestBody::new(StreamBody::new(stream::StreamExt::chain(sent, stream::pending())));
        let mut response = respond(body).into_body();
        let mut frames = Vec::new();
        while let Some(frame) = response.frame().await {
            frames.push(frame.expect("a frame"));
        }
        frames
    }

    /// Returns the status in the last of these frames, and the number of frames before it.
    fn end(frames: &[Frame<Bytes>]) -> (usize, &str) {
        let (last, answers) = frames.split_last().expect("a frame");
        (answers.len(), last.trailers_ref().expect("trailers")[GRPC_STATUS].to_str().expect("a status"))
    }

    fn list() -> Vec<u8> {
        let question = Some(Question::ListServices(String::new()));
        frame(&ServerReflectionRequest { host: "host".to_owned(), question })
    }

    #[tokio::test(start_paused = true)]
    async fn open_stream_ends_after_its_longest_time() {
        let start = Instant::now();
        assert_eq!(end(&frames(list()).await), (1, "4"));
        assert_eq!(start.elapsed().as_secs(), MAX_TIME.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn excessive_questions_end_the_stream() {
        assert_eq!(end(&frames(list().repeat(MAX_QUESTIONS + 1)).await), (MAX_QUESTIONS, "8"));
        let long = Some(Question::FileByFilename("x".repeat(MAX_QUESTION)));
        let long = frame(&ServerReflectionRequest { host: String::new(), question: long });
        assert_eq!(end(&frames([list(), long].concat()).await), (1, "8"));
        let compressed = [&[1][..], &list()[1..]].concat();
        assert_eq!(end(&frames(compressed).await), (0, "12"));
        assert_eq!(end(&frames(b"\0\0\0\0\x01\xff".to_vec()).await), (0, "13"));
    }

    #[test]
    fn answer_repeats_its_question() {
        let questions = [
            (Some(Question::FileByFilename("absent.proto".to_owned())), NOT_FOUND),
            (Some(Question::FileContainingSymbol("absent.Message".to_owned())), NOT_FOUND),
            (Some(Question::FileContainingExtension(messages::Extension::default())), NOT_FOUND),
            (Some(Question::AllExtensionNumbersOfType("absent.Message".to_owned())), NOT_FOUND),
            (None, UNIMPLEMENTED),
        ];
        for (question, code) in questions {
            let request = ServerReflectionRequest { host: "host".to_owned(), question };
            let ServerReflectionResponse { valid_host, original_request, answer } = answer(request.clone());
            assert_eq!((valid_host.as_str(), original_request), ("host", Some(request)));
            let Some(Answer::Error(error)) = answer else { panic!("{answer:?}") };
            assert_eq!(error.error_code, code);
        }
    }
}
