//! Arguments in, exit code out.

use std::process::ExitCode;

/// A request allocates some thirty times, and an idle connection gives back what it used: both are cheaper here than
/// in the C library (docs/internals/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::cli::main()
}
