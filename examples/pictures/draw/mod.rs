//! The pictures: which limits are drawn, and in which words.

mod life;
mod page;

use std::error::Error;

use tidegate::limit::calendar::{Calendar, Unit};
use tidegate::limit::leaky_bucket::Queue;
use tidegate::limit::{Algorithm, Quota};

/// Six permits a minute: one in ten seconds, where they come one by one.
const RATE: u64 = 6;
const INTERVAL: u64 = 60_000;

/// A limit, as a rule file says it.
struct Subject {
    algorithm: Algorithm,
    /// What the rule says beside rate and interval.
    own: &'static str,
    /// How far apart the lines are that its windows or segments begin at, in milliseconds.
    lines: Option<u32>,
    /// What the step line shows.
    left: &'static str,
}

/// Each picture with the name of its file.
pub fn pictures() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    subjects()?.iter().map(picture).collect()
}

fn picture(subject: &Subject) -> Result<(String, String), Box<dyn Error>> {
    let quota = Quota::new(RATE, INTERVAL, subject.algorithm)?;
    let life = life::live(quota)?;
    Ok((format!("{}.svg", subject.algorithm.name()), page::draw(subject, &life)))
}

fn subjects() -> Result<[Subject; 5], Box<dyn Error>> {
    let minutes = Algorithm::FixedWindow(Calendar::new(Unit::Minute, "UTC")?);
    let queue = Algorithm::LeakyBucket(Queue { length: 4, max_wait: INTERVAL });
    let subject = |algorithm, own, lines| Subject { algorithm, own, lines, left: "left" };
    Ok([
        subject(Algorithm::TokenBucket, "", None),
        subject(Algorithm::Gcra { burst: 3 }, ", burst: 3", None),
        Subject { left: "slots", ..subject(queue, ", queue: 4", None) },
        subject(minutes, ", timezone: UTC", Some(60_000)),
        subject(Algorithm::SlidingWindow { segments: 3 }, ", segments: 3", Some(20_000)),
    ])
}
