//! The messages of a stream (grpc/reflection/v1/reflection.proto). `v1alpha` has the same messages.

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ServerReflectionRequest {
    #[prost(string, tag = "1")]
    pub(super) host: String,
    #[prost(oneof = "Question", tags = "3, 4, 5, 6, 7")]
    pub(super) question: Option<Question>,
}

/// The field `message_request`.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Question {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    #[prost(message, tag = "5")]
    FileContainingExtension(Extension),
    #[prost(string, tag = "6")]
    AllExtensionNumbersOfType(String),
    #[prost(string, tag = "7")]
    ListServices(String),
}

/// `ExtensionRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Extension {
    #[prost(string, tag = "1")]
    containing_type: String,
    #[prost(int32, tag = "2")]
    extension_number: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ServerReflectionResponse {
    #[prost(string, tag = "1")]
    pub(super) valid_host: String,
    #[prost(message, optional, tag = "2")]
    pub(super) original_request: Option<ServerReflectionRequest>,
    #[prost(oneof = "Answer", tags = "4, 6, 7")]
    pub(super) answer: Option<Answer>,
}

/// The field `message_response`.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Answer {
    #[prost(message, tag = "4")]
    Files(FileDescriptors),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Error(Error),
}

/// `FileDescriptorResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FileDescriptors {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) file_descriptor_proto: Vec<Bytes>,
}

/// `ListServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Services {
    #[prost(message, repeated, tag = "1")]
    pub(super) service: Vec<Service>,
}

/// `ServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Service {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// `ErrorResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Error {
    #[prost(int32, tag = "1")]
    pub(super) error_code: i32,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}
