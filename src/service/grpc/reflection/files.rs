//! The files that describe the services: `services.binpb`, which `tests/control_plane/descriptors` writes from the descriptors of
//! Envoy and gRPC. It has what these services use, so that 7 KiB describe them.

use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message;

/// A `google.protobuf.FileDescriptorSet`.
const SET: &[u8] = include_bytes!("services.binpb");

/// All files. They are read when the first client asks.
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    // A unit test reads the same bytes.
    let set = FileSet::decode(SET).unwrap_or_default();
    set.files.into_iter().filter_map(File::read).collect()
});

/// A file with its bytes.
pub(super) struct File {
    bytes: Bytes,
    descriptor: FileDescriptor,
}

impl File {
    fn read(bytes: Bytes) -> Option<Self> {
        let descriptor = FileDescriptor::decode(&*bytes).ok()?;
        Some(Self { bytes, descriptor })
    }

    pub(super) fn name(&self) -> &str {
        &self.descriptor.name
    }

    /// Returns `true` if the file declares this message, enum, value, field, service or method, by its full name.
    pub(super) fn has_symbol(&self, symbol: &str) -> bool {
        let FileDescriptor { package, messages, enums, services, .. } = &self.descriptor;
        let Some(name) = inner_name(symbol, package) else { return false };
        messages.iter().any(|message| message.declares(name))
            || enums.iter().any(|declared| declared.declares(name))
            || services.iter().any(|service| declares(name, &service.name, &service.methods))
    }

    fn services(&self) -> impl Iterator<Item = String> {
        let FileDescriptor { package, services, .. } = &self.descriptor;
        services.iter().map(move |service| format!("{package}.{}", service.name))
    }
}

/// Returns the full names of all services.
pub(super) fn all_services() -> impl Iterator<Item = String> {
    FILES.iter().flat_map(File::services)
}

/// Returns the first file that meets a condition, and then all files that it imports. Returns none if there is no such file.
pub(super) fn find_files(condition: impl Fn(&File) -> bool) -> Vec<Bytes> {
    let mut found: Vec<&File> = FILES.iter().filter(|file| condition(file)).take(1).collect();
    let mut next = 0;
    while let Some(file) = found.get(next).copied() {
        let imported = FILES.iter().filter(|other| file.descriptor.imports.iter().any(|name| name == other.name()));
        let added: Vec<_> = imported.filter(|other| found.iter().all(|file| file.name() != other.name())).collect();
        found.extend(added);
        next += 1;
    }
    found.into_iter().map(|file| file.bytes.clone()).collect()
}

/// Returns the rest of a full name after a scope and a dot.
fn inner_name<'n>(name: &'n str, scope: &str) -> Option<&'n str> {
    name.strip_prefix(scope)?.strip_prefix('.')
}

/// Returns `true` if a name is the name of a declaration, or the name of one of its members.
fn declares(name: &str, declared: &str, members: &[Named]) -> bool {
    name == declared || inner_name(name, declared).is_some_and(|name| members.iter().any(|member| member.name == name))
}

impl MessageDescriptor {
    fn declares(&self, name: &str) -> bool {
        let in_nested = |name: &str| {
            self.messages.iter().any(|message| message.declares(name))
                || self.enums.iter().any(|declared| declared.declares(name))
        };
        declares(name, &self.name, &self.fields)
            || declares(name, &self.name, &self.oneofs)
            || inner_name(name, &self.name).is_some_and(in_nested)
    }
}

impl EnumDescriptor {
    /// The values of an enum are in the scope around it.
    fn declares(&self, name: &str) -> bool {
        self.name == name || self.values.iter().any(|value| value.name == name)
    }
}

// === the messages of google/protobuf/descriptor.proto, with the names that are searched ===

#[derive(Clone, PartialEq, Message)]
struct FileSet {
    /// The encoded messages.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct FileDescriptor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(string, repeated, tag = "3")]
    imports: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<MessageDescriptor>,
    #[prost(message, repeated, tag = "5")]
    enums: Vec<EnumDescriptor>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<ServiceDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageDescriptor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    fields: Vec<Named>,
    #[prost(message, repeated, tag = "3")]
    messages: Vec<Self>,
    #[prost(message, repeated, tag = "4")]
    enums: Vec<EnumDescriptor>,
    #[prost(message, repeated, tag = "8")]
    oneofs: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct EnumDescriptor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    values: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceDescriptor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    methods: Vec<Named>,
}

/// A field, a group of fields, a value or a method.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[Bytes]) -> Vec<String> {
        files.iter().map(|bytes| FileDescriptor::decode(&**bytes).expect("a file").name).collect()
    }

    #[test]
    fn each_import_is_among_the_files() {
        let set = FileSet::decode(SET).expect("a set");
        assert_eq!(set.files.len(), FILES.len());
        let imports: Vec<_> = FILES.iter().flat_map(|file| &file.descriptor.imports).collect();
        assert!(!imports.is_empty());
        for import in imports {
            assert!(FILES.iter().any(|file| file.name() == import), "{import}");
        }
    }

    #[test]
    fn symbol_is_found_in_the_file_that_declares_it() {
        let rls = "envoy/service/ratelimit/v3/rls.proto";
        for (symbol, file) in [
            ("envoy.service.ratelimit.v3.RateLimitService", rls),
            ("envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit", rls),
            ("envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus.code", rls),
            ("envoy.service.ratelimit.v3.RateLimitResponse.OVER_LIMIT", rls),
            ("envoy.config.core.v3.HeaderValue", "envoy/config/core/v3/base.proto"),
            ("grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto"),
        ] {
            let found = names(&find_files(|file| file.has_symbol(symbol)));
            assert_eq!(found.first().map(String::as_str), Some(file), "{symbol}");
        }
        for symbol in
            ["", ".", "envoy.service.ratelimit.v3", "envoy.service.ratelimit.v3.RateLimit", "grpc.health.v1.Health."]
        {
            assert!(find_files(|file| file.has_symbol(symbol)).is_empty(), "{symbol}");
        }
    }

    #[test]
    fn file_is_followed_by_its_imports() {
        let found = names(&find_files(|file| file.name() == "envoy/extensions/common/ratelimit/v3/ratelimit.proto"));
        let imports = ["envoy/type/v3/ratelimit_unit.proto", "google/protobuf/wrappers.proto"];
        assert_eq!(found[0], "envoy/extensions/common/ratelimit/v3/ratelimit.proto");
        assert_eq!(found[1..], imports);
        let service = names(&find_files(|file| file.has_symbol("envoy.service.ratelimit.v3.RateLimitService")));
        assert_eq!(service.len(), 8, "{service:?}");
    }
}
