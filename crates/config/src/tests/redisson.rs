//! Limits that are shared with Redisson.

use crate::Config;
use tidegate_limit::redisson::Sharing::{Adopt, Configure};
use tidegate_limit::{Algorithm, Mode};

#[test]
fn limit_shares_or_adopts_a_redisson_limiter() {
    let text = r#"
store: redis://db
routes:
  - name: all
    match: {}
    limits:
      - { name: one, key: "java:{1}", adopt: true }
      - { name: two, key: two, adopt: true, client: ip }
      - { name: three, key: three, adopt: true, mode: PER_CLIENT, client: ip, rate: 5, interval: 1s, permits: 5 }
      - { name: four, key: four, mode: OVERALL, rate: 5, interval: 1s }
"#;
    let config = Config::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    let limits = &config.rules.routes.iter().next().expect("a route").limits;
    let shared = |index: usize| {
        let limiter = &limits[index].limiter;
        (limiter.name.as_str(), limiter.mode, limiter.quota.algorithm())
    };
    let adopt = |mode| Algorithm::Redisson(Adopt(mode));
    assert_eq!(shared(0), ("java:{1}", Mode::Overall, adopt(Some(Mode::Overall))));
    assert_eq!(shared(1), ("two", Mode::PerClient, adopt(None)));
    assert_eq!(shared(2), ("three", Mode::PerClient, adopt(Some(Mode::PerClient))));
    assert_eq!(shared(3), ("four", Mode::Overall, Algorithm::Redisson(Configure)));
    assert_eq!((limits[2].limiter.quota.rate(), limits[3].limiter.quota.interval()), (5, 1_000));
}
