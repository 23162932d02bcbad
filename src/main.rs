//! Arguments in, exit code out.

use std::process::ExitCode;

/// Faster than the C library's allocator, and returns the memory of idle connections to the system
/// (docs/internals/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::internals::cli::main()
}
