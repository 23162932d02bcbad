//! The `tidegate` program.

use std::process::ExitCode;

/// Faster than the allocator of the C library. Also returns the memory of idle connections to the system
/// (docs/internals/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::internals::cli::main()
}
