//! A Redisson client, as Redis sees it: runs its scripts on shared limiters.

use deadpool_redis::redis::{Commands, Connection, RedisResult, cmd};

const ACQUIRE: &str = include_str!("redisson_acquire.lua");
const RELEASE: &str = include_str!("redisson_release.lua");
const AVAILABLE: &str = include_str!("redisson_available.lua");
const UPDATE: &str = include_str!("redisson_update.lua");

/// One limiter of one Redisson client.
pub struct Peer {
    redis: Connection,
    keys: [String; 5],
    /// 1 for PER_CLIENT, 0 for OVERALL.
    kind: u8,
    calls: u128,
}

impl Peer {
    /// Creates a limiter with this name. `client` is its id, which only PER_CLIENT uses.
    pub fn new(redis: Connection, name: &str, client: &str) -> Self {
        let key = |suffix: &str| match name.contains('{') {
            true => format!("{name}:{suffix}"),
            false => format!("{{{name}}}:{suffix}"),
        };
        let [value, permits] = ["value", "permits"].map(key);
        let keys = [
            name.to_owned(),
            value.clone(),
            format!("{value}:{client}"),
            permits.clone(),
            format!("{permits}:{client}"),
        ];
        Self { redis, keys, kind: 0, calls: 0 }
    }

    /// Writes the configuration that `trySetRate` writes to an empty Redis.
    pub fn configure(&mut self, kind: u8, rate: u64, interval: u64, keep_alive: u64) {
        let fields = [("rate", rate), ("interval", interval), ("keepAliveTime", keep_alive), ("type", kind.into())];
        self.kind = kind;
        self.redis.hset_multiple::<_, _, _, ()>(&self.keys[0], &fields).expect("configured");
        if keep_alive > 0 {
            self.redis.pexpire::<_, ()>(&self.keys[0], keep_alive.cast_signed()).expect("an expiry");
        }
    }

    /// Takes permits at `now`. Returns `None` if they were granted, or the wait in milliseconds.
    pub fn acquire(&mut self, permits: u32, now: u64) -> Option<i64> {
        self.calls += 1;
        self.acquire_as(self.calls, permits, now).expect("a reply")
    }

    /// Takes permits with these random bytes. A second call with the same arguments repeats the first one.
    pub fn acquire_as(&mut self, random: u128, permits: u32, now: u64) -> RedisResult<Option<i64>> {
        self.eval(ACQUIRE).arg(permits).arg(now).arg(&random.to_be_bytes()[..]).query(&mut self.redis)
    }

    /// Releases permits: raises the counter and keeps the log.
    pub fn release(&mut self, permits: u32) {
        self.eval(RELEASE).arg(permits).exec(&mut self.redis).expect("released");
    }

    /// Runs `updateRate`, which keeps permits in use, or `setRate` if `keep` is `false`.
    pub fn update(&mut self, rate: u64, interval: u64, now: u64, keep: bool) {
        let mut call = self.eval(UPDATE);
        call.arg(rate).arg(interval).arg(self.kind).arg(0).arg(now).arg(u8::from(keep));
        call.exec(&mut self.redis).expect("updated");
    }

    /// Removes expired entries and returns the number of available permits.
    pub fn available(&mut self, now: u64) -> i64 {
        self.eval(AVAILABLE).arg(now).query(&mut self.redis).expect("a number")
    }

    /// Returns the counter.
    pub fn counter(&mut self) -> Option<i64> {
        self.redis.get(self.value()).expect("a counter")
    }

    /// Sets the counter, without a check.
    pub fn set_counter(&mut self, counter: i64) {
        self.redis.set::<_, _, ()>(self.value(), counter).expect("set");
    }

    /// Returns the members and scores of the log.
    pub fn log(&mut self) -> Vec<(Vec<u8>, u64)> {
        self.redis.zrange_withscores(self.permits(), 0, -1).expect("a log")
    }

    /// Adds a member to the log.
    pub fn write(&mut self, member: &[u8], at: u64) {
        cmd("ZADD").arg(self.permits()).arg(at).arg(member).exec(&mut self.redis).expect("written");
    }

    /// Returns the keys in Redisson's order.
    pub fn keys(&self) -> &[String; 5] {
        &self.keys
    }

    /// Returns the keys that Tidegate's scripts need: Redisson's keys, and Tidegate's own key for the client's log.
    pub fn script_keys(&self) -> [String; 6] {
        let note = self.keys[4].replace(":permits:", ":tidegate:");
        let [hash, value, own_value, permits, own_permits] = self.keys.clone();
        [hash, value, own_value, permits, own_permits, note]
    }

    /// Returns the connection for other commands.
    pub fn redis(&mut self) -> &mut Connection {
        &mut self.redis
    }

    /// Returns the key of the counter.
    pub fn value(&self) -> String {
        self.keys[1 + usize::from(self.kind)].clone()
    }

    /// Returns the key of the log.
    pub fn permits(&self) -> String {
        self.keys[3 + usize::from(self.kind)].clone()
    }

    fn eval(&self, script: &str) -> deadpool_redis::redis::Cmd {
        let mut call = cmd("EVAL");
        call.arg(script).arg(self.keys.len()).arg(&self.keys[..]);
        call
    }
}

/// Encodes a log entry in one of the formats that versions of Redisson use.
pub fn member(format: &str, salt: u8, permits: u32) -> Vec<u8> {
    let random = |length: u8| (0..length).map(|byte| salt.wrapping_mul(31).wrapping_add(byte)).collect::<Vec<_>>();
    let head = match format {
        "fI" => random(4),
        "Lc0I" => [&8_u64.to_le_bytes()[..], &random(8)].concat(),
        "Bc0I/8" => [&[8][..], &random(8)].concat(),
        _ => [&[16][..], &random(16)].concat(),
    };
    [&head[..], &permits.to_le_bytes()].concat()
}

/// Returns Tidegate's script, for calls that the store would not make.
pub fn script() -> String {
    let read = |name: &str| std::fs::read_to_string(format!("lua/{name}.lua")).expect("a script");
    let [shared, own, redisson] = ["shared", "token_bucket", "redisson"].map(read);
    let operations = ["admit", "operations"].map(read).join("\n");
    format!(
        "local algorithms = {{}}\n{shared}\ndo\n{own}end\ndo\n{redisson}end\n{operations}\n\
         return operations[ARGV[1]](ARGV)"
    )
}

/// Encodes the only request of an `admit` call: `permits` of its only bucket.
pub fn request(permits: u32) -> Vec<u8> {
    [&1_u32.to_le_bytes()[..], &[1], &1_u16.to_le_bytes(), &[0], &permits.to_le_bytes()].concat()
}

/// Decodes the reply to an `admit` call with one request of one limit: now, granted, remaining, wait, reset.
pub fn answer(bytes: &[u8]) -> [i64; 5] {
    let (now, bytes) = bytes.split_first_chunk().expect("the time");
    assert_eq!(&bytes[..4], &1_u32.to_le_bytes(), "not one decision");
    let number = |from: usize, length: usize| {
        let mut eight = [0; 8];
        eight[..length].copy_from_slice(&bytes[from..from + length]);
        i64::from_le_bytes(eight)
    };
    let granted = bytes[4] == 1;
    assert_eq!(bytes.len(), if granted { 15 } else { 23 });
    let wait = if granted { 0 } else { number(15, 8) };
    [i64::from_le_bytes(*now), granted.into(), number(5, 4), wait, number(9, 6)]
}
