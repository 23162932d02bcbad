//! Fuzz targets and the properties that they check.

#[path = "../tests/it/support"]
pub mod support {
    //! The strict HTTP reader of the tests, and their Redis.

    pub mod redis;
    pub mod strict;
}

pub mod targets;
