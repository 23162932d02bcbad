# The gateway and nothing else: built with Rust, run on a Debian of its own, as nobody in particular.

FROM rust:1.95-bookworm AS builder
WORKDIR /build

# Dependencies change seldom. With a stand-in for the program they are built into a layer of their own, which stays
# until Cargo.toml or Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src tests/it \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs tests/it/main.rs \
    && cargo build --release --locked --bin tidegate \
    && rm -r src tests

COPY src src
COPY lua lua
COPY config config
# The stand-in is newer than the sources are, and cargo goes by time.
RUN touch src/main.rs src/lib.rs && cargo build --release --locked --bin tidegate

FROM debian:bookworm-slim
# Whom `https://` and `rediss://` trust where the rule file names nobody.
RUN apt-get update \
    && apt-get install --no-install-recommends --yes ca-certificates \
    && rm -r /var/lib/apt/lists/*
COPY --from=builder /build/target/release/tidegate /usr/local/bin/tidegate
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/tidegate/

# A number, so that a cluster that allows no root can see that this is none.
USER 65532:65532
# Clients, and operators: what the rule file listens on, which is mounted.
EXPOSE 8080 9901
# Readiness fails, requests finish, connections close.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tidegate"]
CMD ["run", "-c", "/etc/tidegate/tidegate.yaml"]
