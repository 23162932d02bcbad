# An image with only the program, linked statically: no shell and no libraries. It runs as an unprivileged user, and writes
# nothing to its file system.
#
#   docker build --tag tidegate .
#   docker run --rm --read-only --publish 8080:8080 --publish 127.0.0.1:9901:9901 tidegate
#
# A release replaces the stage `builder` by a folder with the programs of the archives:
# docker buildx build --build-context builder=FOLDER

# On Alpine, Rust links with musl, statically.
FROM rust:1.95-alpine AS builder
ARG TARGETARCH
WORKDIR /build

# Dependencies rarely change. A placeholder program builds them in a separate layer, which is cached until Cargo.toml or
# Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
COPY benches/steps/Cargo.toml benches/steps/
COPY crates/config/Cargo.toml crates/config/
COPY crates/convert/Cargo.toml crates/convert/
COPY crates/layer/Cargo.toml crates/layer/
COPY crates/limit/Cargo.toml crates/limit/
COPY crates/metrics/Cargo.toml crates/metrics/
COPY crates/proxy/Cargo.toml crates/proxy/
COPY crates/replay/Cargo.toml crates/replay/
COPY crates/rules/Cargo.toml crates/rules/
COPY crates/service/Cargo.toml crates/service/
COPY crates/store/Cargo.toml crates/store/
COPY crates/usage/Cargo.toml crates/usage/
RUN mkdir -p src tests/it tests/otlp \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs tests/it/main.rs tests/otlp/main.rs \
    && for crate in crates/*; do mkdir $crate/src && touch $crate/src/lib.rs; done \
    && cargo build --profile dist --locked --features otlp --bin tidegate \
    && rm -r src tests

COPY src src
COPY crates crates
COPY lua lua
COPY dashboard dashboard
COPY config config
# Cargo compares modification times, and the placeholder is newer than the sources.
RUN touch src/main.rs src/lib.rs crates/*/src/lib.rs && cargo build --profile dist --locked --features otlp --bin tidegate
# `ratelimit` runs in place of envoyproxy/ratelimit, with its environment variables.
RUN mkdir -p out/$TARGETARCH/bin && cp target/dist/tidegate out/$TARGETARCH/bin/ && ln -s tidegate out/$TARGETARCH/bin/ratelimit

FROM scratch
ARG TARGETARCH
# The trust anchors of `https://` and `rediss://`, unless the rule file sets others.
COPY --from=alpine:3.22 /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=builder /build/out/$TARGETARCH/ /
COPY config/image.yaml /etc/tidegate/tidegate.yaml
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/tidegate/

# A numeric user, so that Kubernetes can verify `runAsNonRoot`.
USER 65532:65532
# The ports for clients and for operators. A mounted rule file must use them.
EXPOSE 8080 9901
# Starts the drain: readiness fails, requests finish, connections close.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/bin/tidegate"]
CMD ["run", "-c", "/etc/tidegate/tidegate.yaml"]
