//! Tests of the state of a name, with a simulated clock.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A name, and the time that has passed.
struct Name {
    state: NameState,
    start: Instant,
    now: Instant,
}

impl Name {
    fn new() -> Self {
        let now = Instant::now();
        Self { state: NameState::new(now), start: now, now }
    }

    /// Waits until the next resolution is due, and answers it. Returns the seconds since the start of the test.
    fn resolve(&mut self, result: Result<Answer, LookupError>) -> f64 {
        self.now = self.now.max(self.state.next_start());
        self.state.start(self.now);
        match result {
            Ok(answer) => self.state.record_answer(&answer, None, self.now),
            Err(error) => self.state.record_error(&error, self.now),
        }
        self.seconds()
    }

    fn seconds(&self) -> f64 {
        (self.now - self.start).as_secs_f64()
    }

    /// Returns the seconds until the next resolution.
    fn until_next(&self) -> f64 {
        (self.state.next_start() - self.now).as_secs_f64()
    }

    fn connect_fails(&mut self, address: &str) {
        self.state.record_unreachable(address.parse().unwrap(), self.now);
    }

    fn addresses(&self) -> Vec<String> {
        self.state.addresses().iter().map(|known| known.address.to_string()).collect()
    }
}

fn host(addresses: &[&str]) -> Host {
    let (ipv4, ipv6) = addresses.iter().map(|text| text.parse::<SocketAddr>().unwrap()).partition(SocketAddr::is_ipv4);
    Host { ipv4, ipv6, weight: 1 }
}

fn answer(addresses: &[&str], ttl: u64) -> Answer {
    Answer { hosts: vec![host(addresses)], ttl: Duration::from_secs(ttl), missing: Missing::Nothing }
}

fn failed() -> Result<Answer, LookupError> {
    Err(LookupError::Failed("SERVFAIL".into()))
}

#[test]
fn ttl_is_bounded_on_both_sides() {
    for (ttl, seconds) in [(0, 1.0), (1, 1.0), (12, 12.0), (30, 30.0), (600, 30.0)] {
        let mut name = Name::new();
        assert_eq!(name.resolve(Ok(answer(&["10.0.0.1:80"], ttl))), 0.0);
        assert_eq!(name.until_next(), seconds, "{ttl}");
    }
}

#[test]
fn addresses_stay_while_no_server_answers() {
    let mut name = Name::new();
    name.resolve(Ok(answer(&["10.0.0.1:80"], 5)));
    let times: Vec<_> = (0..6).map(|_| name.resolve(failed())).collect();
    assert_eq!(times, [5.0, 6.0, 8.0, 12.0, 17.0, 22.0]);
    assert!(name.resolve(failed()) < 30.0);
    (0..1_000).for_each(|_| _ = name.resolve(failed()));
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
    name.resolve(Ok(answer(&["10.0.0.2:80"], 5)));
    assert_eq!(name.addresses(), ["10.0.0.2:80"]);
    let after = name.seconds();
    assert_eq!(name.resolve(failed()), after + 5.0);
    assert_eq!(name.until_next(), 1.0, "the interval starts again");
}

#[test]
fn absent_name_keeps_its_addresses_for_30_seconds() {
    let mut name = Name::new();
    name.resolve(Ok(answer(&["10.0.0.1:80"], 5)));
    assert_eq!(name.resolve(Err(LookupError::Absent)), 5.0);
    loop {
        let seconds = name.resolve(Err(LookupError::Absent));
        if seconds >= 35.0 {
            assert_eq!((seconds, name.addresses().len()), (35.0, 0));
            break;
        }
        assert_eq!(name.addresses(), ["10.0.0.1:80"], "{seconds}");
    }
    name.resolve(Ok(answer(&["10.0.0.1:80"], 5)));
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
    assert!(name.resolve(Err(LookupError::Absent)) > 35.0);
    assert_eq!(name.addresses(), ["10.0.0.1:80"], "the grace starts again");
}

#[test]
fn failed_resolution_keeps_addresses_of_an_absent_name() {
    let mut name = Name::new();
    name.resolve(Ok(answer(&["10.0.0.1:80"], 1)));
    name.resolve(Err(LookupError::Absent));
    while name.seconds() < 100.0 {
        name.resolve(failed());
    }
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
    name.resolve(Err(LookupError::Absent));
    assert_eq!(name.addresses(), [""; 0]);
}

#[test]
fn name_is_resolved_at_once_if_no_address_is_reachable() {
    let mut name = Name::new();
    name.resolve(Ok(answer(&["10.0.0.1:80", "10.0.0.2:80"], 600)));
    name.now += 10 * SECOND;
    name.connect_fails("10.0.0.1:80");
    name.connect_fails("10.0.0.1:80");
    name.connect_fails("10.9.9.9:80");
    assert_eq!(name.until_next(), 20.0, "an address is reachable");
    name.connect_fails("10.0.0.2:80");
    assert_eq!(name.until_next(), 0.0);
    // The same answer again: at most one resolution a second.
    let mut resolutions = 0;
    let end = name.now + 10 * SECOND;
    while name.now < end {
        if name.state.next_start() <= name.now {
            resolutions += 1;
            name.resolve(Ok(answer(&["10.0.0.1:80", "10.0.0.2:80"], 600)));
        }
        name.connect_fails("10.0.0.1:80");
        name.connect_fails("10.0.0.2:80");
        name.now += SECOND / 100;
    }
    assert_eq!(resolutions, 10);
}

#[test]
fn slow_resolutions_start_at_most_once_a_second() {
    let mut name = Name::new();
    name.state.start(name.now);
    name.now += SECOND / 4;
    name.state.record_answer(&answer(&["10.0.0.1:80"], 600), None, name.now);
    name.connect_fails("10.0.0.1:80");
    assert_eq!(name.until_next(), 0.75);
}

#[test]
fn only_the_reachable_family_is_used() {
    let mut name = Name::new();
    let both = answer(&["[2001:db8::1]:80", "10.0.0.1:80"], 600);
    assert!(name.state.must_probe(&both));
    assert!(!name.state.must_probe(&answer(&["10.0.0.1:80"], 600)));
    name.state.start(name.now);
    name.state.record_answer(&both, Some(Family::Ipv6), name.now);
    assert_eq!(name.addresses(), ["[2001:db8::1]:80"]);
    assert!(!name.state.must_probe(&both), "the family is known");
    name.connect_fails("[2001:db8::1]:80");
    assert!(name.state.must_probe(&both), "the family has become unreachable");
    name.state.record_answer(&both, Some(Family::Ipv4), name.now);
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
    // Without IPv4, the name is still reachable.
    name.state.record_answer(&answer(&["[2001:db8::1]:80"], 600), None, name.now);
    assert_eq!(name.addresses(), ["[2001:db8::1]:80"]);
}

#[test]
fn both_families_are_used_until_one_is_reachable() {
    let mut name = Name::new();
    let both = answer(&["[2001:db8::1]:80", "10.0.0.1:80"], 600);
    let times: Vec<_> = (0..5).map(|_| name.resolve(Ok(both.clone()))).collect();
    assert_eq!(times, [0.0, 1.0, 3.0, 7.0, 12.0]);
    assert_eq!(name.addresses().len(), 2);
    name.state.record_answer(&both, Some(Family::Ipv4), name.now);
    assert_eq!((name.addresses(), name.until_next()), (vec!["10.0.0.1:80".to_owned()], 30.0));
}

/// Otherwise a restart of the upstream would add and remove addresses.
#[test]
fn family_stays_while_no_address_is_reachable() {
    let mut name = Name::new();
    let both = answer(&["[2001:db8::1]:80", "10.0.0.1:80"], 600);
    name.state.record_answer(&both, Some(Family::Ipv6), name.now);
    name.connect_fails("[2001:db8::1]:80");
    name.state.record_answer(&both, None, name.now);
    assert_eq!(name.addresses(), ["[2001:db8::1]:80"]);
}

#[test]
fn hosts_of_a_service_have_weights_and_families() {
    let mut name = Name::new();
    let first = Host { weight: 3, ..host(&["10.0.0.1:81", "[2001:db8::1]:81"]) };
    let second = Host { weight: 0, ..host(&["[2001:db8::2]:82"]) };
    let service = Answer { hosts: vec![second, first], ttl: SECOND, missing: Missing::Nothing };
    name.state.record_answer(&service, Some(Family::Ipv4), name.now);
    let shown: Vec<_> = name.state.addresses().iter().map(|a| format!("{} {}", a.address, a.weight)).collect();
    assert_eq!(shown, ["10.0.0.1:81 3", "[2001:db8::2]:82 1"]);
}

#[test]
fn number_of_addresses_is_bounded() {
    let mut name = Name::new();
    let texts: Vec<_> = (0..4_096).map(|n| format!("10.0.{}.{}:80", n / 256, n % 256)).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    name.resolve(Ok(answer(&texts, 5)));
    assert_eq!(name.addresses().len(), 256);
    // Repeated addresses count once.
    name.resolve(Ok(answer(&["10.0.0.1:80", "10.0.0.1:80"], 5)));
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
}

#[test]
fn answer_without_the_used_family_changes_nothing() {
    let mut name = Name::new();
    let both = answer(&["10.0.0.1:80", "[2001:db8::1]:80"], 5);
    name.state.start(name.now);
    name.state.record_answer(&both, Some(Family::Ipv6), name.now);
    let lost = |family| Answer { missing: Missing::Family(family), ..answer(&["10.0.0.1:80"], 5) };
    name.resolve(Ok(lost(Family::Ipv6)));
    assert_eq!(name.addresses(), ["[2001:db8::1]:80"]);
    name.connect_fails("[2001:db8::1]:80");
    name.resolve(Ok(lost(Family::Ipv6)));
    assert_eq!(name.addresses(), ["10.0.0.1:80"], "the known address is not reachable");
}

#[test]
fn answer_without_a_host_is_used_only_at_the_start() {
    let mut name = Name::new();
    let partial = |addresses: &[&str]| Ok(Answer { missing: Missing::Host, ..answer(addresses, 5) });
    name.resolve(partial(&["10.0.0.1:80"]));
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
    name.resolve(partial(&["10.0.0.2:80"]));
    assert_eq!(name.addresses(), ["10.0.0.1:80"]);
    name.resolve(Ok(answer(&["10.0.0.2:80"], 5)));
    assert_eq!(name.addresses(), ["10.0.0.2:80"]);
}
