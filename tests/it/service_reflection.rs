//! Reflection of the rate limit service: clients such as grpcurl read which services there are, and their messages.

use prost::Message;

use crate::support::service::TestService;

const PATHS: [&str; 2] = ["v1", "v1alpha"];

const SERVICES: [&str; 4] = [
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

// === the messages of grpc/reflection/v1/reflection.proto ===

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, optional, tag = "4")]
    symbol: Option<String>,
    #[prost(string, optional, tag = "7")]
    services: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(message, repeated, tag = "1")]
    files: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Named>,
}

/// A service, or a file of which the other fields are skipped.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[tokio::test]
async fn client_describes_all_services_in_one_stream() {
    let service =
        TestService::start("memory", &["name: all, match: { user: '*' }, mode: OVERALL, rate: 9, interval: 1m"]);
    for version in PATHS {
        let client = service.client().await;
        let mut stream =
            client.open(&format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")).await;
        let list = Question { services: Some(String::new()), ..Question::default() };
        let answer: Answer = stream.ask(&list).await;
        let names: Vec<_> = answer.services.expect("services").services.into_iter().map(|found| found.name).collect();
        assert_eq!(names, SERVICES);
        for name in names {
            let answer: Answer = stream.ask(&Question { symbol: Some(name.clone()), ..Question::default() }).await;
            let files = answer.files.unwrap_or_else(|| panic!("no files of {name}")).files;
            let folder = name.rsplit_once('.').expect("a package").0.replace('.', "/");
            assert!(files[0].name.starts_with(&folder), "{files:?}");
        }
        assert_eq!(stream.end().await, 0);
    }
}
