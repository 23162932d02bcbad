//! What is fuzzed, and what it is held to.

#[path = "../tests/it/support"]
pub mod support {
    //! The strict reader of the tests, and their Redis.

    pub mod redis;
    pub mod strict;
}

pub mod targets;
