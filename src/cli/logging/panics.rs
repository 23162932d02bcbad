//! Panics as lines of the log.

/// Logs every panic: its location, and its message if that is a literal of the program. A message formatted at run time may
/// contain what a client sent. With `RUST_BACKTRACE`, everything also goes to standard error.
pub(super) fn log() {
    let usual = std::panic::take_hook();
    let shows_all = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string);
        let said = panic.payload().downcast_ref::<&'static str>().copied();
        let thread = std::thread::current();
        tracing::error!(place, thread = thread.name(), said, "a panic: this is a mistake in the program");
        if shows_all {
            usual(panic);
        }
    }));
}
