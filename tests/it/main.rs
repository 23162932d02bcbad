//! All integration tests, in one binary so that it links once.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod access_log;
mod attacks;
mod batches;
mod check;
mod checker;
mod compose;
mod corpora;
mod descriptors;
mod differential;
mod explain;
mod fields;
mod foreign;
mod foreign_late;
mod foreign_laws;
mod functions;
mod gateway;
mod ha;
mod http2;
mod http2_slow;
mod interop;
mod laws;
mod laws_shadow;
mod laws_windows;
mod layer;
mod logs;
mod lost_data;
mod many_clients;
mod max_body;
mod one_decision;
mod outage;
mod overflow;
mod pictures;
mod program;
mod rate_limiter;
mod readme;
mod redis_acl;
mod redis_connection;
mod redis_faults;
mod redis_format;
mod redis_tls;
mod redisson_weaknesses;
mod reference;
mod replaced_rules;
mod sentinel;
mod slots;
mod spellings;
mod starvation;
mod stress;
mod support;
mod targets;
mod tidy;
mod waiting;
mod windows_redis;
