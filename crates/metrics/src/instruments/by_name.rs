//! Series that end with the last rules that use their names: of routes, limits, upstreams and targets.
//!
//! Handles are created when a rule file is loaded, for every route and limit. So all series of a name are one allocation,
//! and a series is exported only when it has data: 5,000 routes would make a page of 33 MB with only zeros. For
//! Prometheus, a missing counter is the same as one that is 0.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};
use smallvec::SmallVec;

use crate::catalog::Label;
use crate::instruments::family::Series;

/// The names in the labels of a series: of a route, of a route and its limit, or the like.
type Names<const N: usize> = [Arc<str>; N];

/// The series `D` of each name. Clones share them.
#[derive(Debug)]
pub(crate) struct ByName<D, const N: usize>(Arc<RwLock<BTreeMap<Names<N>, Weak<Named<D, N>>>>>);

/// The series of one name. They are exported until the handle and its clones are dropped.
#[derive(Debug)]
pub(crate) struct Handle<D, const N: usize>(Arc<Named<D, N>>);

/// The series of one name, and their names.
#[derive(Debug)]
pub(crate) struct Named<D, const N: usize> {
    pub(crate) names: Names<N>,
    pub(crate) series: D,
    all: ByName<D, N>,
}

/// A metric: some of the series of each name. The name's labels come first. If there is another label, its words are in
/// the order of the series.
#[derive(Debug)]
pub(crate) struct NamedMetric<D, M, const N: usize> {
    all: ByName<D, N>,
    labels: &'static [Label],
    words: &'static [&'static str],
    series: fn(&D) -> &[M],
}

// === impl ByName ===

impl<D, const N: usize> ByName<D, N> {
    /// Returns the series of a name. Creates them if the name has no handle.
    pub(crate) fn get_or_create(&self, names: Names<N>, create: impl FnOnce() -> D) -> Handle<D, N> {
        let mut all = self.0.write();
        if let Some(named) = all.get(&names).and_then(Weak::upgrade) {
            return Handle(named);
        }
        let named = Arc::new(Named { names: names.clone(), series: create(), all: self.clone() });
        all.insert(names, Arc::downgrade(&named));
        Handle(named)
    }

    /// Returns the series of all names, in the order of the names.
    pub(crate) fn all(&self) -> Vec<Handle<D, N>> {
        self.0.read().values().filter_map(Weak::upgrade).map(Handle).collect()
    }

    /// Returns the metric with these series. The last label may list their words.
    pub(crate) fn metric<M>(&self, labels: &'static [Label], series: fn(&D) -> &[M]) -> NamedMetric<D, M, N> {
        let words = match labels.last() {
            Some(Label::Fixed(_, words)) => words,
            Some(Label::Open(_)) | None => &[][..],
        };
        NamedMetric { all: self.clone(), labels, words, series }
    }
}

impl<D, const N: usize> Default for ByName<D, N> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<D, const N: usize> Clone for ByName<D, N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// === impl Handle ===

impl<D, const N: usize> Handle<D, N> {
    pub(crate) fn names(&self) -> [&str; N] {
        self.0.names.each_ref().map(|name| &**name)
    }
}

impl<D, const N: usize> Deref for Handle<D, N> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.0.series
    }
}

impl<D, const N: usize> Clone for Handle<D, N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D, const N: usize> Drop for Named<D, N> {
    fn drop(&mut self) {
        let mut all = self.all.0.write();
        // Between the drop of the last handle and this lock, the name may have got other series.
        if all.get(&self.names).is_some_and(|named| named.strong_count() == 0) {
            all.remove(&self.names);
        }
    }
}

// === impl NamedMetric ===

impl<D, M, const N: usize> NamedMetric<D, M, N> {
    /// Sets the words of the last label.
    pub(crate) fn with_words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }
}

impl<D: Debug, M: EncodeMetric + TypedMetric + Series, const N: usize> EncodeMetric for NamedMetric<D, M, N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for named in self.all.all() {
            let with_data = (self.series)(&named).iter().enumerate().filter(|(_, metric)| !metric.is_untouched());
            for (position, metric) in with_data {
                let values = named.names().into_iter().chain(self.words.get(position).copied());
                let labels: SmallVec<[(&str, &str); 4]> = self.labels.iter().map(Label::name).zip(values).collect();
                metric.encode(encoder.encode_family(&&labels[..])?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.all.all().iter().all(|named| (self.series)(named).iter().all(Series::is_untouched))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_shared_while_their_name_has_a_handle() {
        let all: ByName<u32, 1> = ByName::default();
        let get = |name: &str, value| all.get_or_create([name.into()], || value);
        let (first, second) = (get("b", 1), get("b", 2));
        let other = get("a", 3);
        assert_eq!((*first, *second, *other), (1, 1, 3));
        drop(first);
        assert_eq!(*get("b", 4), 1);
        assert_eq!(all.all().iter().map(Handle::names).collect::<Vec<_>>(), [["a"], ["b"]]);
        drop((second, other));
        assert!(all.0.read().is_empty());
        assert_eq!(*get("b", 5), 5);
    }
}
