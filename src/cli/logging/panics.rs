//! Panics as lines of the log.

/// Has every panic logged: where it happened, and what it says if that is a text of the program's own. What was put together
/// at run time may hold what a client sent. With `RUST_BACKTRACE` everything is shown on standard error as well.
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
