# An image with only the gateway: built with Rust, on a slim Debian, run as an unprivileged user.

FROM rust:1.95-bookworm AS builder
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

FROM debian:bookworm-slim
# The trust anchors of `https://` and `rediss://`, unless the rule file sets others.
RUN apt-get update \
    && apt-get install --no-install-recommends --yes ca-certificates \
    && rm -r /var/lib/apt/lists/*
COPY --from=builder /build/target/dist/tidegate /usr/local/bin/tidegate
# In place of envoyproxy/ratelimit, with its environment variables.
RUN ln -s /usr/local/bin/tidegate /bin/ratelimit
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/tidegate/

# A numeric user, so that Kubernetes can verify `runAsNonRoot`.
USER 65532:65532
# The ports for clients and for operators. The mounted rule file must use them.
EXPOSE 8080 9901
# Starts the drain: readiness fails, requests finish, connections close.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tidegate"]
CMD ["run", "-c", "/etc/tidegate/tidegate.yaml"]
