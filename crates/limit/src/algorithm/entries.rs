//! A queue of few entries. In the usual case of a single entry it needs no heap memory.

use std::collections::VecDeque;

/// Entries, oldest first.
#[derive(Clone, Debug)]
pub(crate) enum Entries<T> {
    /// No entry or one entry.
    Few(Option<T>),
    /// Any number, on the heap.
    Many(VecDeque<T>),
}

impl<T> Entries<T> {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(single) => single.iter().len(),
            Self::Many(many) => many.len(),
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        match self {
            Self::Few(single) => single.as_ref(),
            Self::Many(many) => many.front(),
        }
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        match self {
            Self::Few(single) => single.as_ref(),
            Self::Many(many) => many.back(),
        }
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Few(single) => single.as_mut(),
            Self::Many(many) => many.back_mut(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<&T> {
        match self {
            Self::Few(single) => single.as_ref().filter(|_| position == 0),
            Self::Many(many) => many.get(position),
        }
    }

    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut T> {
        match self {
            Self::Few(single) => single.as_mut().filter(|_| position == 0),
            Self::Many(many) => many.get_mut(position),
        }
    }

    /// Iterates over all entries, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (front, back) = match self {
            Self::Few(single) => (single.as_slice(), &[][..]),
            Self::Many(many) => many.as_slices(),
        };
        front.iter().chain(back)
    }

    /// Returns the number of matching entries. All matching entries must precede all others.
    pub(super) fn partition_point(&self, is_before: impl FnMut(&T) -> bool) -> usize {
        match self {
            Self::Few(single) => single.as_slice().partition_point(is_before),
            Self::Many(many) => many.partition_point(is_before),
        }
    }

    pub(super) fn push_back(&mut self, entry: T) {
        match self {
            Self::Many(many) => many.push_back(entry),
            Self::Few(single) => match single.take() {
                None => *single = Some(entry),
                Some(first) => *self = Self::Many(VecDeque::from([first, entry])),
            },
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        match self {
            Self::Few(single) => single.take(),
            Self::Many(many) => many.pop_front(),
        }
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        match self {
            Self::Few(single) => single.take(),
            Self::Many(many) => many.pop_back(),
        }
    }

    pub(super) fn remove(&mut self, position: usize) -> Option<T> {
        match self {
            Self::Few(single) => single.take_if(|_| position == 0),
            Self::Many(many) => many.remove(position),
        }
    }

    /// Removes and returns all entries from `position` on.
    pub(super) fn split_off(&mut self, position: usize) -> impl Iterator<Item = T> {
        match self {
            Self::Few(single) => single.take_if(|_| position == 0).into_iter().chain(VecDeque::new()),
            Self::Many(many) => None.into_iter().chain(many.split_off(position)),
        }
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self::Few(None)
    }
}

impl<T: PartialEq> PartialEq for Entries<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for Entries<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn entries_behave_like_a_queue(steps in prop::collection::vec((0..8_u8, 0..4_usize), 1..40)) {
            let (mut entries, mut queue) = (Entries::default(), VecDeque::new());
            for (number, (step, position)) in steps.into_iter().enumerate() {
                // Changing an entry keeps the order, which `partition_point` needs.
                let value = 2 * number;
                match step {
                    0 | 1 => {
                        entries.push_back(value);
                        queue.push_back(value);
                    }
                    2 => prop_assert_eq!(entries.pop_front(), queue.pop_front()),
                    3 => prop_assert_eq!(entries.pop_back(), queue.pop_back()),
                    4 => prop_assert_eq!(entries.remove(position), queue.remove(position)),
                    5 => {
                        let position = position.min(queue.len());
                        prop_assert!(entries.split_off(position).eq(queue.split_off(position)));
                    }
                    6 => {
                        let changed = [entries.get_mut(position), queue.get_mut(position)];
                        changed.into_iter().flatten().for_each(|entry| *entry |= 1);
                    }
                    _ => {
                        let changed = [entries.back_mut(), queue.back_mut()];
                        changed.into_iter().flatten().for_each(|entry| *entry |= 1);
                    }
                }
                prop_assert!(entries.iter().eq(&queue));
                prop_assert_eq!((entries.len(), entries.front(), entries.back()), (queue.len(), queue.front(), queue.back()));
                prop_assert_eq!(entries.get(position), queue.get(position));
                let before = |entry: &usize| *entry < number;
                prop_assert_eq!(entries.partition_point(before), queue.partition_point(before));
            }
        }
    }
}
