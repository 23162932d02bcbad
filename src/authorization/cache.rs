//! Permissions of services, by all that the services received. Denials are not kept.

use std::collections::VecDeque;
use std::fmt;

use hashbrown::HashMap;
use http::Request;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::answer::size;
use tidegate_layer::authorization::PassedFields;
use tidegate_limit::random::random;
use tidegate_rules::request::identity::ServiceCheck;

/// The number of parts with their own lock.
const SHARDS: usize = 16;

/// The highest number of permissions in a shard.
const MAX_ENTRIES: usize = 4_096;

/// The most bytes of fields in a shard.
const MAX_BYTES: usize = 1 << 20;

/// Identifies a question.
pub(super) type Key = [u8; 32];

/// The permissions of all services. All workers share them.
pub(crate) struct AnswerCache {
    shards: [Mutex<Shard>; SHARDS],
    /// The key of the hashes, so that no client can find two questions with one hash.
    secret: Key,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, Entry>,
    /// The keys in the order of their insertion. A key occurs twice if its entry was replaced.
    order: VecDeque<(Key, u64)>,
    /// The bytes of fields of all entries.
    bytes: usize,
    /// The number of the last insertion.
    last: u64,
}

struct Entry {
    fields: PassedFields,
    end: Instant,
    number: u64,
}

// === impl AnswerCache ===

impl AnswerCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        Self { shards: Default::default(), secret: random() }
    }

    /// Returns the key of a question: the service, the fields that it passes, and everything that it receives.
    pub(super) fn key<B>(&self, check: &ServiceCheck, request: &Request<B>) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        let mut add = |text: &[u8]| _ = hasher.update(&(text.len() as u64).to_le_bytes()).update(text);
        add(check.upstream.as_bytes());
        add(check.url.path().as_str().as_bytes());
        add(&(check.pass.len() as u64).to_le_bytes());
        check.pass.iter().for_each(|name| add(name.as_str().as_bytes()));
        for (name, value) in request.headers() {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns the fields of a permission that is valid at `now`.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<PassedFields> {
        let shard = self.shard(key).lock();
        shard.entries.get(key).filter(|entry| entry.end > now).map(|entry| PassedFields::clone(&entry.fields))
    }

    /// Adds a permission that is valid until `end`. Removes the oldest permissions of a full shard.
    pub(super) fn insert(&self, key: Key, fields: &PassedFields, end: Instant) {
        self.shard(&key).lock().insert(key, PassedFields::clone(fields), end);
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.shards[usize::from(key[0]) % SHARDS]
    }
}

// === impl Shard ===

impl Shard {
    fn insert(&mut self, key: Key, fields: PassedFields, end: Instant) {
        self.remove(&key);
        let bytes = size(&fields);
        while self.order.len() >= MAX_ENTRIES || self.bytes + bytes > MAX_BYTES {
            let Some((oldest, number)) = self.order.pop_front() else { return };
            if self.entries.get(&oldest).is_some_and(|entry| entry.number == number) {
                self.remove(&oldest);
            }
        }
        self.last += 1;
        self.bytes += bytes;
        self.order.push_back((key, self.last));
        self.entries.insert(key, Entry { fields, end, number: self.last });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= size(&entry.fields);
        }
    }
}

/// Shows no fields and no secret.
impl fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{HeaderName, HeaderValue};

    use super::*;

    fn key(number: usize) -> Key {
        let mut key = Key::default();
        key[8..16].copy_from_slice(&number.to_le_bytes());
        key
    }

    fn fields(bytes: usize) -> PassedFields {
        let value = HeaderValue::from_str(&"x".repeat(bytes - 1)).unwrap();
        Arc::new([(HeaderName::from_static("a"), value)])
    }

    #[test]
    fn permission_ends() {
        let (cache, start) = (AnswerCache::new(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        cache.insert(key(1), &fields(10), after(5));
        assert!(cache.get(&key(1), after(4)).is_some_and(|fields| fields.len() == 1));
        assert!(cache.get(&key(1), after(5)).is_none() && cache.get(&key(2), after(4)).is_none());
    }

    #[test]
    fn full_shard_drops_the_oldest_permissions() {
        let (mut shard, end) = (Shard::default(), Instant::now());
        (0..3 * MAX_ENTRIES).for_each(|number| shard.insert(key(number), fields(1), end));
        assert_eq!((shard.entries.len(), shard.order.len(), shard.bytes), (MAX_ENTRIES, MAX_ENTRIES, MAX_ENTRIES));
        assert!(shard.entries.contains_key(&key(2 * MAX_ENTRIES)) && !shard.entries.contains_key(&key(0)));
        (0..3 * MAX_ENTRIES).for_each(|number| shard.insert(key(number), fields(4_096), end));
        assert_eq!((shard.entries.len(), shard.bytes), (MAX_BYTES / 4_096, MAX_BYTES));
    }

    #[test]
    fn replaced_permissions_stay_bounded() {
        let (mut shard, end) = (Shard::default(), Instant::now());
        (0..5 * MAX_ENTRIES).for_each(|number| shard.insert(key(number % 3), fields(2), end));
        assert_eq!((shard.entries.len(), shard.bytes), (3, 6));
        assert!(shard.order.len() <= MAX_ENTRIES);
    }

    /// Without the lengths, a client could move bytes from one value to the next.
    #[test]
    fn key_depends_on_each_part_of_a_question() {
        let check = |pass: &[&'static str]| ServiceCheck {
            url: tidegate_rules::request::identity::ServiceUrl::parse("http://a/check").unwrap(),
            upstream: "http://a".into(),
            ca: None,
            headers: Vec::new(),
            pass: pass.iter().copied().map(HeaderName::from_static).collect(),
            cache: None,
            timeout: ServiceCheck::DEFAULT_TIMEOUT,
            on_failure: Default::default(),
        };
        let request = |fields: &[(&str, &str)]| {
            let request =
                fields.iter().fold(Request::get("/check"), |request, (name, value)| request.header(*name, *value));
            request.body(()).unwrap()
        };
        let cache = AnswerCache::new();
        let keys = [
            cache.key(&check(&[]), &request(&[("a", "bc"), ("d", "e")])),
            cache.key(&check(&[]), &request(&[("a", "b"), ("cd", "e")])),
            cache.key(&check(&[]), &request(&[("a", "bc"), ("d", "")])),
            cache.key(&check(&[]), &request(&[("a", "bc"), ("a", "d"), ("d", "e")])),
            cache.key(&check(&["a"]), &request(&[("a", "bc"), ("d", "e")])),
            cache.key(&check(&["a", "bc"]), &request(&[("d", "e")])),
            AnswerCache::new().key(&check(&[]), &request(&[("a", "bc"), ("d", "e")])),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], cache.key(&check(&[]), &request(&[("a", "bc"), ("d", "e")])));
    }
}
