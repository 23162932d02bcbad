//! Boxes futures in place.
//!
//! Rare parts of the future of a request are boxed where they are awaited: inline, they would enlarge the future of every
//! request, whose size a test of `forward` bounds.
//!
//! `Box::pin` creates its argument first and then copies all of it into the box, including uninitialized space for
//! later states of the future. For the future of a request this is most of 1,000 bytes.

use std::pin::Pin;

/// Allocates a box and writes the result of `make` into it.
#[inline]
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
