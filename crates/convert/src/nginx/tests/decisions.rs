//! `limit_req` with and without `burst`, `nodelay` and `delay`.

use proptest::prelude::*;

use super::*;

/// Requests of up to three clients, in bursts and after pauses.
fn traces(longest_pause: u64) -> impl Strategy<Value = Vec<Request>> {
    let gap = prop_oneof![3 => Just(0), 2 => 0..60_u64, 1 => 0..longest_pause];
    prop::collection::vec((gap, 1..=3_u8), 1..80).prop_map(|gaps| {
        let mut time = 0;
        let request = |(gap, client): (u64, u8)| {
            time += gap;
            request(time, &format!("10.0.0.{client}"), "/")
        };
        gaps.into_iter().map(request).collect()
    })
}

fn per_client(rate: i64, burst: i64) -> impl Fn(&Request) -> Vec<Charge> {
    move |request| vec![Charge { zone: "one", key: request.client.to_string(), rate, burst }]
}

fn one_zone(rate: &str, options: &str) -> Conversion {
    let zone = format!("limit_req_zone $binary_remote_addr zone=one:10m rate={rate};");
    convert(&with_limits(&zone, &format!("limit_req zone=one {options};")))
}

#[test]
fn burst_and_delay_become_algorithms() {
    for (options, keys) in [
        ("", "algorithm: gcra, burst: 1 }"),
        ("nodelay", "algorithm: gcra, burst: 1 }"),
        ("burst=5 nodelay", "algorithm: gcra, burst: 6 }"),
        ("burst=5", "algorithm: leaky_bucket, queue: 5, max_wait: 500ms }"),
        ("burst=5 delay=2", "algorithm: gcra, burst: 3, queue: 3, max_wait: 300ms }"),
        ("burst=5 delay=5", "algorithm: gcra, burst: 6 }"),
        ("burst=5 delay=9", "algorithm: gcra, burst: 6 }"),
    ] {
        let found = lines(&one_zone("10r/s", options), "rate: 10");
        assert!(found.len() == 1 && found[0].contains(keys), "{options}: {found:?}");
    }
}

#[test]
fn rates_are_rounded_as_nginx_rounds_them() {
    for (rate, quota) in [
        ("10r/s", "rate: 10, interval: 1s"),
        ("30r/m", "rate: 1, interval: 2s"),
        ("1r/m", "rate: 2, interval: 125s"),
        ("50r/m", "rate: 833, interval: 1000s"),
    ] {
        assert_eq!(lines(&one_zone(rate, ""), quota).len(), 1, "{rate}");
    }
    let conversion = one_zone("1r/m", "");
    assert_eq!(findings(&conversion, "limit_req_zone"), ["same: nginx rounds the rate to 0.016 requests per second"]);
}

#[test]
fn first_requests_of_a_burst_pass_at_once() {
    let trace: Vec<_> = (0..10).map(|_| request(0, "10.0.0.1", "/")).collect();
    for (options, admitted) in [("", 1), ("burst=5 nodelay", 6), ("burst=5", 6), ("burst=5 delay=2", 6)] {
        let found = decisions(&one_zone("10r/s", options), &trace);
        assert_eq!(found.iter().filter(|admitted| **admitted).count(), admitted, "{options}");
    }
}

#[test]
fn several_limits_count_all_or_none() {
    let zones =
        "limit_req_zone $binary_remote_addr zone=ip:1m rate=2r/s; limit_req_zone $server_name zone=all:1m rate=5r/s;";
    let conversion =
        convert(&with_limits(zones, "limit_req zone=ip burst=3 nodelay; limit_req zone=all burst=4 nodelay;"));
    let charges = |request: &Request| {
        vec![
            Charge { zone: "ip", key: request.client.to_string(), rate: 2_000, burst: 3 },
            Charge { zone: "all", key: "server".to_owned(), rate: 5_000, burst: 4 },
        ]
    };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(32));
    let check = |trace: Vec<Request>| {
        prop_assert_eq!(decisions(&conversion, &trace), of_nginx(&trace, charges));
        Ok(())
    };
    runner.run(&traces(2_000), check).unwrap();
}

#[test]
fn dry_run_rejects_nothing() {
    let zone = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s; limit_req_dry_run on;";
    let conversion = convert(&with_limits(zone, "limit_req zone=one;"));
    let trace: Vec<_> = (0..5).map(|_| request(0, "10.0.0.1", "/")).collect();
    assert_eq!(decisions(&conversion, &trace), [true; 5]);
    assert_eq!(lines(&conversion, "shadow: true").len(), 1);
}

#[test]
fn statuses_of_rejections_are_kept() {
    let zone = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;";
    let conversion = convert(&with_limits(zone, "limit_req zone=one; limit_req_status 444;"));
    assert_eq!(lines(&conversion, "status: 444").len(), 1);
    let conversion = convert(&with_limits(zone, "limit_req zone=one; limit_req_status 429;"));
    assert!(!conversion.rules.contains("reject"));
}

#[test]
fn replicas_share_the_sum_of_their_rates() {
    let options = crate::Options { replicas: 3.try_into().unwrap(), ..Default::default() };
    let text = with_limits("limit_req_zone $binary_remote_addr zone=one:1m rate=2r/s;", "limit_req zone=one burst=4;");
    let conversion = crate::testing::converted_with(&options, [("nginx.conf", &text)]);
    assert_eq!(lines(&conversion, "rate: 6, interval: 1s, algorithm: leaky_bucket, queue: 12, max_wait: 2s").len(), 1);
    assert!(findings(&conversion, "limit_req_zone")[0].starts_with("looser"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bursts_decide_as_nginx_does(rate in 1..20_i64, burst in 0..8_i64, delay in 0..9_i64, trace in traces(3_000)) {
        let options = match delay {
            0 => format!("burst={burst}"),
            8 => format!("burst={burst} nodelay"),
            delay => format!("burst={burst} delay={delay}"),
        };
        let conversion = one_zone(&format!("{rate}r/s"), &options);
        let expected = of_nginx(&trace, per_client(rate * 1_000, burst));
        prop_assert_eq!(decisions(&conversion, &trace), expected, "{} {}", rate, options);
    }
}
