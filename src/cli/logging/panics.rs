//! Writes panics to the log.

/// Logs the location of every panic, and its message if that is a literal of the program. Formatted messages are
/// omitted, because they may contain client input. With `RUST_BACKTRACE`, the full report also goes to standard error.
pub(super) fn log() {
    let default_hook = std::panic::take_hook();
    let shows_all = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string);
        let panic_message = panic.payload().downcast_ref::<&'static str>().copied();
        let thread = std::thread::current();
        tracing::error!(place, thread = thread.name(), panic_message, "panic: this is a bug in tidegate");
        if shows_all {
            default_hook(panic);
        }
    }));
}
