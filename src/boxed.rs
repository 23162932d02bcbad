//! Boxes futures in place.
//!
//! `Box::pin` makes its argument first and then moves all of it into the box, also the room for what the future has yet to come
//! to. Of a request's future that is most of 1,000 bytes.

use std::pin::Pin;

/// What `make` makes, written into a box that is there already.
#[inline]
pub(crate) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
